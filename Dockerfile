# One broker in an image: slim, not root, with a health check.
#   docker build -t headrace:0.1.0 .
#   docker run -p 127.0.0.1:9092:9092 -p 127.0.0.1:9324:9324 -v headrace:/var/lib/headrace headrace:0.1.0
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
# The lock says which versions: what was tested is what is installed.
RUN python -m venv /opt/headrace \
 && /opt/headrace/bin/python -m pip install --no-cache-dir --disable-pip-version-check uv \
 && /opt/headrace/bin/uv pip install --python /opt/headrace/bin/python --no-cache -c requirements.lock . \
 && /opt/headrace/bin/uv pip uninstall --python /opt/headrace/bin/python uv

FROM python:3.12-slim-bookworm
COPY --from=build /opt/headrace /opt/headrace
COPY deploy/healthcheck.py /opt/headrace/healthcheck.py
RUN useradd --system --uid 10001 --home-dir /var/lib/headrace --shell /usr/sbin/nologin headrace \
 && install -d -o headrace -g headrace -m 0700 /var/lib/headrace
ENV PATH=/opt/headrace/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEADRACE_DATA_DIR=/var/lib/headrace \
    HEADRACE_HOST=0.0.0.0 \
    HEADRACE_ADVERTISED_HOST=localhost
USER 10001:10001
VOLUME /var/lib/headrace
EXPOSE 9092 9324
# SIGTERM hands leaderships over, syncs and closes; give it the time (docker stop -t 90).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "/opt/headrace/healthcheck.py"]
ENTRYPOINT ["headrace"]
# Whoever can reach a published port can do everything: publish on 127.0.0.1 as above, or run `serve --secure`.
CMD ["serve", "--insecure"]
