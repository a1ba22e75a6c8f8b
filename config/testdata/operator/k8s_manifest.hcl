# the pod of the shop
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    livenessProbe:
      httpGet: { path: /healthz, port: 8080 }
