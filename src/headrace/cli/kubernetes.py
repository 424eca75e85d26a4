"""Command: the Kubernetes manifests that `generate k8s` writes, as text: what people read, change and keep in their own repository."""

from __future__ import annotations

HEAD = """\
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
---
# Every broker under a name of its own: what clients are told, and what brokers call each other by.
apiVersion: v1
kind: Service
metadata: {{name: headrace-brokers, namespace: {namespace}, labels: {{app: headrace}}}}
spec:
  clusterIP: None
  # Brokers find each other before they are ready.
  publishNotReadyAddresses: true
  selector: {{app: headrace}}
  ports:
    - {{name: kafka, port: 9092}}
    - {{name: http, port: 9324}}
---
# Where clients begin: any broker that is ready.
apiVersion: v1
kind: Service
metadata: {{name: headrace, namespace: {namespace}, labels: {{app: headrace}}}}
spec:
  selector: {{app: headrace}}
  ports:
    - {{name: kafka, port: 9092}}
    - {{name: http, port: 9324}}
---
# One broker at a time may be away on purpose: every partition keeps its other replicas.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: headrace, namespace: {namespace}}}
spec:
  maxUnavailable: 1
  selector: {{matchLabels: {{app: headrace}}}}
---
"""

BROKERS = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: headrace, namespace: {namespace}, labels: {{app: headrace}}}}
spec:
  replicas: {brokers}
  serviceName: headrace-brokers
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: headrace}}}}
  template:
    metadata:
      labels: {{app: headrace}}
      annotations: {{prometheus.io/scrape: "true", prometheus.io/port: "9324", prometheus.io/path: /metrics}}
    spec:
      # SIGTERM hands leaderships over, syncs and closes.
      terminationGracePeriodSeconds: 120
      securityContext: {{runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {{type: RuntimeDefault}}}}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {{matchLabels: {{app: headrace}}}}
{init}      containers:
        - name: headrace
          image: {image}
          # A broker's number belongs to its volume: that of the pod, from one.
          command: ["/bin/sh", "-c", 'exec headrace serve {flag} --node-id "$((${{POD_NAME##*-}} + 1))"']
          env:
            - {{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
            - {{name: HEADRACE_HOST, value: 0.0.0.0}}
            - {{name: HEADRACE_ADVERTISED_HOST, value: $(POD_NAME).headrace-brokers.{namespace}.svc.cluster.local}}
            - {{name: HEADRACE_ALLOWED_HOSTS, value: "headrace,headrace.{namespace},headrace.{namespace}.svc,.{namespace}.svc.cluster.local"}}
            - {{name: HEADRACE_DATA_DIR, value: /var/lib/headrace}}
            - {{name: HEADRACE_DEFAULT_REPLICATION_FACTOR, value: "{replicas}"}}
{more}          ports:
            - {{name: kafka, containerPort: 9092}}
            - {{name: http, containerPort: 9324}}
          # Opening large logs after a crash takes its time.
          startupProbe: {{httpGet: {{path: /livez, port: http, scheme: {scheme}}}, periodSeconds: 2, failureThreshold: 150}}
          readinessProbe: {{httpGet: {{path: /readyz, port: http, scheme: {scheme}}}, periodSeconds: 5, timeoutSeconds: 3}}
          livenessProbe: {{httpGet: {{path: /livez, port: http, scheme: {scheme}}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}}
          # Time for the services to forget this pod; then it drains by itself.
          lifecycle: {{preStop: {{exec: {{command: [sleep, "5"]}}}}}}
          resources:
            # One broker is one event loop: more than a core and a half is never used.
            requests: {{cpu: 500m, memory: 512Mi}}
            limits: {{memory: 2Gi}}
          securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
          volumeMounts:
            - {{name: data, mountPath: /var/lib/headrace}}
            - {{name: tmp, mountPath: /tmp}}
{mount}      volumes:
        - {{name: tmp, emptyDir: {{}}}}
{volume}  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {{requests: {{storage: {storage}}}}}
"""

INIT = """\
      # Files in a secret are readable by the pod's group; brokers want keys that only they can read.
      initContainers:
        - name: keys
          image: {image}
          command: ["/bin/sh", "-c", "umask 077 && cp -L /secret/* /security/"]
          securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
          volumeMounts:
            - {{name: secret, mountPath: /secret, readOnly: true}}
            - {{name: security, mountPath: /security}}
"""

ETCD = """\
---
apiVersion: v1
kind: Service
metadata: {{name: etcd, namespace: {namespace}, labels: {{app: etcd}}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{app: etcd}}
  ports:
    - {{name: client, port: 2379}}
    - {{name: peer, port: 2380}}
---
# Whoever writes to the coordinator decides everything: brokers and its own members, and nobody else.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: etcd, namespace: {namespace}}}
spec:
  podSelector: {{matchLabels: {{app: etcd}}}}
  policyTypes: [Ingress]
  ingress:
    - from:
        - podSelector: {{matchLabels: {{app: headrace}}}}
        - podSelector: {{matchLabels: {{app: etcd}}}}
      ports:
        - {{port: 2379}}
        - {{port: 2380}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: etcd, namespace: {namespace}}}
spec:
  maxUnavailable: 1
  selector: {{matchLabels: {{app: etcd}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: etcd, namespace: {namespace}, labels: {{app: etcd}}}}
spec:
  replicas: 3
  serviceName: etcd
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: etcd}}}}
  template:
    metadata:
      labels: {{app: etcd}}
    spec:
      securityContext: {{runAsNonRoot: true, runAsUser: 10002, runAsGroup: 10002, fsGroup: 10002, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
        - name: etcd
          image: {etcd}
          env:
            - {{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
          command:
            - etcd
            - --name=$(POD_NAME)
            - --data-dir=/var/lib/etcd/data
            - --listen-client-urls=http://0.0.0.0:2379
            - --advertise-client-urls=http://$(POD_NAME).etcd:2379
            - --listen-peer-urls=http://0.0.0.0:2380
            - --initial-advertise-peer-urls=http://$(POD_NAME).etcd:2380
            - --initial-cluster=etcd-0=http://etcd-0.etcd:2380,etcd-1=http://etcd-1.etcd:2380,etcd-2=http://etcd-2.etcd:2380
            - --initial-cluster-token=headrace
            - --auto-compaction-retention=1h
            - --listen-metrics-urls=http://0.0.0.0:2381
          ports:
            - {{name: client, containerPort: 2379}}
            - {{name: peer, containerPort: 2380}}
            - {{name: metrics, containerPort: 2381}}
          readinessProbe: {{httpGet: {{path: /health, port: metrics}}, periodSeconds: 5}}
          resources:
            requests: {{cpu: 100m, memory: 128Mi}}
            limits: {{memory: 512Mi}}
          securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
          volumeMounts:
            - {{name: data, mountPath: /var/lib/etcd}}
  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {{requests: {{storage: 2Gi}}}}
"""

OPEN_NOTE = """\
# Whoever reaches the services may do everything. For users and rights write them with --secure.
"""

SECURE_NOTE = """\
# First the files of a secured cluster, once; keep ca.key out of the cluster:
#   headrace security init --directory headrace-security --brokers {brokers} --hosts {hosts}
#   kubectl -n {namespace} create secret generic headrace-security $(cd headrace-security && for f in *; do [ "$f" = ca.key ] || echo --from-file=headrace-security/$f; done)
# etcd is plain inside its network policy, which has to be enforced by your network; for TLS see docs/security.md.
"""


def manifests(
    brokers: int, namespace: str, image: str, etcd_image: str, storage: str, *, secure: bool
) -> str:
    more = []
    if brokers > 1:
        members = ",".join(f"etcd-{number}.etcd:2379" for number in range(3))
        more.append(f"            - {{name: HEADRACE_COORDINATOR, value: 'etcd://{members}'}}\n")
    if secure:
        more.append("            - {name: HEADRACE_SECURITY_DIR, value: /security}\n")
        if brokers > 1:
            more.append('            - {name: HEADRACE_INSECURE_COORDINATOR, value: "true"}\n')
    names = [f"headrace-{number}.headrace-brokers.{namespace}.svc.cluster.local" for number in range(brokers)]
    hosts = ",".join([*names, f"headrace.{namespace}.svc.cluster.local", "headrace"])
    note = SECURE_NOTE.format(brokers=brokers, hosts=hosts, namespace=namespace) if secure else OPEN_NOTE
    text = note + HEAD.format(namespace=namespace)
    text += BROKERS.format(
        namespace=namespace,
        brokers=brokers,
        replicas=min(3, brokers),
        image=image,
        storage=storage,
        scheme="HTTPS" if secure else "HTTP",
        flag="--secure" if secure else "--insecure",
        init=INIT.format(image=image) if secure else "",
        mount="            - {name: security, mountPath: /security}\n" if secure else "",
        volume="        - {name: secret, secret: {secretName: headrace-security}}\n        - {name: security, emptyDir: {medium: Memory}}\n" if secure else "",
        more="".join(more),
    )  # fmt: skip
    return text + (ETCD.format(namespace=namespace, etcd=etcd_image) if brokers > 1 else "")
