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

{{- /* What the controller may do to the definitions whose versions it converts. */ -}}
{{- define "weir.definitions" }}
# Where the API server has SMI's versions converted, and by which certificates that is known.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: {{ include "weir.converted" . }}
  verbs: [get, patch]
{{- if and .Values.rollouts.enabled .Values.rollouts.workloads }}
# Whether pods of further workloads can be replaced step by step.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: {{ include "weir.namedWorkloads" . }}
  verbs: [get]
{{- end }}
{{- end }}

{{- /* The kinds of workloads that rollouts.workloads names, as their definitions are called. */ -}}
{{- define "weir.namedWorkloads" -}}
{{- $all := list -}}
{{- range .Values.rollouts.workloads -}}
{{- $all = append $all (printf "%s.%s" .resource .group) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- /* The labels of pods that tell versions of workloads apart. */ -}}
{{- define "weir.revisionLabels" -}}
{{- $all := list "pod-template-hash" "controller-revision-hash" -}}
{{- range .Values.rollouts.workloads -}}
{{- with .label -}}
{{- $all = append $all . -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $all) -}}
{{- end -}}

{{- /* What the controller may do to answer about traffic. */ -}}
{{- define "weir.traffic" }}
{{- if .Values.traffic.enabled }}
# Who may ask about traffic.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
# By which certificates the API server knows the controller that answers.
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  resourceNames: {{ include "weir.allAPIServices" . }}
  verbs: [get, patch]
{{- end }}
{{- end }}

{{- /* What the controller may do so that the API server asks it before objects are stored. */ -}}
{{- define "weir.admission" }}
{{- if .Values.rollouts.enabled }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "weir.name" . }}-rollouts]
  verbs: [get, patch]
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ include "weir.name" . }}-workloads]
  verbs: [get, patch]
{{- end }}
{{- if .Values.mesh.enabled }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  resourceNames: [{{ include "weir.name" . }}-sidecars, {{ include "weir.name" . }}-tlsconfigs]
  verbs: [get, patch]
{{- end }}
{{- end }}

{{- /* The configurations of the controller's own admission webhooks. */ -}}
{{- define "weir.configurations" -}}
{{- $name := include "weir.name" . -}}
{{- $all := list -}}
{{- if .Values.rollouts.enabled -}}
{{- $all = append (append $all (printf "%s-rollouts" $name)) (printf "%s-workloads" $name) -}}
{{- end -}}
{{- if .Values.mesh.enabled -}}
{{- $all = append (append $all (printf "%s-sidecars" $name)) (printf "%s-tlsconfigs" $name) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- /* The namespaces whose pods never have sidecars. */ -}}
{{- define "weir.noSidecars" -}}
["kube-node-lease", "kube-public", "kube-system", "{{ .Release.Namespace }}"]
{{- end -}}

{{- /* The webhooks for pods that are to have sidecars, at a path: those for which the namespace asks, unless they opt out, and those that ask
themselves. A namespace's label does not reach pods of the node's network; one of them that asks itself is asked about, to be refused. */ -}}
{{- define "weir.sidecarHooks" }}
{{- $root := index . 0 }}
{{- $path := index . 1 }}
{{- range list "namespaces" "pods" }}
- name: {{ . }}.sidecars.weirmesh.github.io
  admissionReviewVersions: [v1]
  clientConfig:
    service:
      namespace: {{ $root.Release.Namespace }}
      name: {{ include "weir.name" $root }}
      path: {{ $path }}
      port: 443
  failurePolicy: Fail
  matchPolicy: Equivalent
  {{- if eq $path "/admit/pods" }}
  reinvocationPolicy: IfNeeded
  {{- end }}
  sideEffects: None
  timeoutSeconds: 5
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ include "weir.noSidecars" $root }}}
    - {key: weirmesh.github.io/inject, operator: {{ if eq . "pods" }}NotIn{{ else }}In{{ end }}, values: [enabled]}
    {{- with $root.Values.namespaces }}
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
    {{- end }}
  objectSelector:
    matchExpressions:
    {{- if eq . "pods" }}
    - {key: weirmesh.github.io/inject, operator: Exists}
    {{- end }}
    - {key: weirmesh.github.io/inject, operator: NotIn, values: [disabled]}
  rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: Namespaced
  matchConditions:
  - name: not-of-a-file
    expression: >-
      !(has(object.metadata.annotations) && "kubernetes.io/config.mirror" in object.metadata.annotations)
  - name: not-of-the-node
    expression: >-
      !(has(object.spec.hostNetwork) && object.spec.hostNetwork) ||
      has(object.metadata.labels) && "weirmesh.github.io/inject" in object.metadata.labels
{{- end }}
{{- end }}

{{- /* What the controller may do in each namespace that it watches. */ -}}
{{- define "weir.rules" }}
# What is read, and what is said of it. Of Secrets and ConfigMaps names alone are watched; those that are referred to are fetched.
{{- include "weir.kinds" . }}
{{- include "weir.releases" . }}
{{- if .Values.rollouts.enabled }}
{{- range .Values.rollouts.workloads }}
- apiGroups: [{{ .group }}]
  resources: [{{ .resource }}]
  verbs: [list, update, watch]
{{- end }}
{{- end }}
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

{{- /* The beginning of an admission policy about the controller: the chart and the last part of its name. */ -}}
{{- define "weir.policy" -}}
{{- $root := index . 0 }}
metadata:
  name: {{ include "weir.name" $root }}-{{ index . 1 }}
  labels:
    {{- include "weir.labels" $root | nindent 4 }}
  {{- include "weir.annotations" $root }}
spec:
  failurePolicy: Fail
  matchConditions:
  - name: controller
    expression: request.userInfo.username == "system:serviceaccount:{{ $root.Release.Namespace }}:{{ include "weir.name" $root }}"
{{- end -}}

{{- /* Conditions of policies about objects of Gateways where Rollouts are carried out: those are about objects of users, of which the policy
"releases" says what may be changed. */ -}}
{{- define "weir.notOfReleases" -}}
{{- if .Values.rollouts.enabled }}
  - name: of-gateways
    expression: >-
      !({{ include "weir.ofReleases" . | nindent 6 }})
{{- end }}
{{- end -}}

{{- /* Whether a request is about a Deployment or a Service of a user, or about one that is made for a Rollout. Somebody may have taken a
label away, but not that the controller has written fields of what it makes for Gateways. */ -}}
{{- define "weir.ofReleases" -}}
request.resource.resource in ["deployments", "services"] && request.operation == "UPDATE" &&
!(has(oldObject.metadata.labels) && "app.kubernetes.io/managed-by" in oldObject.metadata.labels && oldObject.metadata.labels["app.kubernetes.io/managed-by"] == "weir" ||
has(oldObject.metadata.managedFields) && oldObject.metadata.managedFields.exists(m, m.manager == "weir" && m.operation == "Apply")) ||
request.resource.resource == "services" && request.operation in ["CREATE", "DELETE"] &&
[object, oldObject].exists(o, o != null && has(o.metadata.ownerReferences) && o.metadata.ownerReferences.exists(r, r.kind == "Rollout" &&
r.apiVersion.startsWith("rollouts.kruise.io/") && has(r.controller) && r.controller))
{{- end -}}

{{- define "weir.binding" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "weir.name" $root }}-{{ index . 1 }}
  labels:
    {{- include "weir.labels" $root | nindent 4 }}
  {{- include "weir.annotations" $root }}
spec:
  policyName: {{ include "weir.name" $root }}-{{ index . 1 }}
  validationActions: [Deny]
{{- end -}}

{{- /* The image of proxies: the one named, else the controller's with "-proxy" before its tag, else, of a digest, the controller's. */ -}}
{{- define "weir.proxyImage" -}}
{{- $image := .Values.image.name -}}
{{- with (.Values.proxyImage).name -}}
{{- . -}}
{{- else -}}
{{- if contains "@" $image -}}
{{- $image -}}
{{- else -}}
{{- regexReplaceAll "(:[^/]*)?$" $image "-proxy${1}" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The images that the chart names, without tag and digest. A controller before an upgrade has proxies run the one of image. */ -}}
{{- define "weir.repositories" -}}
{{- $all := list -}}
{{- range list .Values.image.name (include "weir.proxyImage" .) (.Values.proxies.image | default .Values.image.name) -}}
{{- $all = append $all (regexReplaceAll ":[^/]*$" (regexReplaceAll "@.*$" . "") "") -}}
{{- end -}}
{{- toJson (uniq $all) -}}
{{- end -}}

{{- /* The namespaces that are watched, and the pods of proxies, as selectors of a NetworkPolicy. A Gateway cannot set these labels. */ -}}
{{- define "weir.namespaces" -}}
{{- if .Values.namespaces -}}
{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: {{ toJson .Values.namespaces }}}]}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- define "weir.proxies" -}}
{matchLabels: {app.kubernetes.io/managed-by: weir}, matchExpressions: [{key: gateway.networking.k8s.io/gateway-name, operator: Exists}, {key: gateway.networking.k8s.io/gateway-class-name, operator: Exists}]}
{{- end -}}

{{- /* Where there are sidecars, a ConfigMap for them is among what the controller makes. */ -}}
{{- define "weir.trust" -}}
{{- if .Values.mesh.enabled }}variables.trust || {{ end -}}
{{- end -}}

{{- /* Resources as a flag has them. What is not there is taken away from the flag's default. */ -}}
{{- define "weir.amounts" -}}
{{- $all := . | default dict -}}
{{- $out := list -}}
{{- range list "cpu" "memory" "ephemeral-storage" -}}
{{- $amount := "none" -}}
{{- if hasKey $all . }}{{ $amount = toString (get $all .) }}{{ end -}}
{{- $out = append $out (printf "%s=%s" . $amount) -}}
{{- end -}}
{{- join "," $out -}}
{{- end -}}
