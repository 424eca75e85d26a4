"""Is the broker in this container ready? Ends with 0 when it is. Run by HEALTHCHECK; nothing is read or changed but the status of /readyz.

A broker with --secure speaks TLS with a certificate for its own names, which loopback is not always among: whose it is does not
matter to somebody who asks his own container whether it is well.
"""

import http.client
import os
import ssl
import sys

host = os.environ.get("HEADRACE_HOST") or "127.0.0.1"
if host in ("0.0.0.0", "::"):
    host = "127.0.0.1"
port = int(os.environ.get("HEADRACE_HTTP_PORT") or 9324)
unverified = ssl.create_default_context()
unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
seen = ""
for connection in (
    http.client.HTTPSConnection(host, port, timeout=3, context=unverified),
    http.client.HTTPConnection(host, port, timeout=3),
):
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as problem:
        seen = f"nobody answers: {problem}"
        continue
    if answer.status == 200:
        sys.exit(0)
    seen = f"not ready: {answer.read(500).decode(errors='replace')}"
    break
sys.exit(seen)
