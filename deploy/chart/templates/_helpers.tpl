{{- /* What one release is called. The names do not follow the release: a cluster has one Weir for a GatewayClass. */ -}}
{{- define "weir.name" -}}
weir-controller
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/component: controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/part-of: weir
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weir.annotations" -}}
{{- with .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* Of the roles in each namespace that is watched, its own among them. */ -}}
{{- define "weir.watch" -}}
weir-controller-watch
{{- end -}}

{{- /* What the controller may do in each namespace that it watches. */ -}}
{{- define "weir.rules" }}
# What is read. Of Secrets and ConfigMaps names alone are watched; those that are referred to are fetched.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets, httproutes, grpcroutes, tcproutes, backendtlspolicies]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [referencegrants]
  verbs: [list, watch]
- apiGroups: [split.smi-spec.io]
  resources: [trafficsplits]
  verbs: [list, watch]
- apiGroups: [specs.smi-spec.io]
  resources: [httproutegroups, tcproutes, udproutes]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
# What is said of it.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/status, listenersets/status, httproutes/status, grpcroutes/status, tcproutes/status, backendtlspolicies/status]
  verbs: [update]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# What each Gateway gets, and Services and ConfigMaps that are read.
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
