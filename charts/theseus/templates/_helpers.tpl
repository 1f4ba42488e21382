{{/* The labels of an object of the chart. */}}
{{- define "theseus.labels" -}}
app.kubernetes.io/name: theseus-controller
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels of an object of the page. */}}
{{- define "theseus.web.labels" -}}
{{ include "theseus.labels" . | replace "app.kubernetes.io/name: theseus-controller" "app.kubernetes.io/name: theseus-web" }}
{{- end }}

{{/* The image, by its digest if there is one. */}}
{{- define "theseus.image" -}}
{{ .Values.image.registry }}/{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The name of the Secret with the allowed signers. Its content never changes: another list has another name. */}}
{{- define "theseus.signers" -}}
theseus-signers-{{ .Values.allowedSigners | sha256sum | trunc 10 }}
{{- end }}

{{/* The flags for the addresses of the API servers, as a JSON list: the values, or what the cluster has now, which may change. */}}
{{- define "theseus.apiServers" -}}
{{- $found := list }}
{{- range .Values.apiServers }}
{{- $found = append $found (printf "--api-server=%s" .) }}
{{- end }}
{{- if not $found }}
{{- $slice := lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" | default dict }}
{{- range $port := $slice.ports }}
{{- if eq ($port.name | default "https") "https" }}
{{- range $endpoint := $slice.endpoints }}
{{- range $address := $endpoint.addresses }}
{{- $host := ternary (printf "[%s]" $address) $address (contains ":" $address) }}
{{- $found = append $found (printf "--first-api-server=%s:%d" $host (int $port.port)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* What all pods of the chart have: they use the network of their node, and no Service and no DNS of the cluster. */}}
{{- define "theseus.pod" -}}
hostNetwork: true
dnsPolicy: Default
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- range . }}
  - {{ toJson . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- end }}

{{/* What all containers of the chart may do. */}}
{{- define "theseus.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
