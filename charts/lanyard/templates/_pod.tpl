{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /*
The annotations of the pods. Changed settings replace the replicas. Changed providers
and identities do not: the webhook reads them again.
*/ -}}
{{- define "lanyard.podAnnotations" -}}
{{- $annotations := mergeOverwrite (deepCopy .Values.commonAnnotations) (tpl (toYaml .Values.podAnnotations) . | fromYaml) -}}
{{- $settings := omit .Values.config "providers" "identities" -}}
{{- if and $settings (not .Values.existingConfigMap) -}}
{{- $_ := set $annotations "checksum/config" (toYaml $settings | sha256sum) -}}
{{- end -}}
{{- toYaml $annotations -}}
{{- end -}}

{{- /* Scheduling and runtime settings of the pods. */ -}}
{{- define "lanyard.scheduling" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- if not (kindIs "invalid" .Values.hostUsers) }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
# On different nodes and zones if possible.
topologySpreadConstraints:
  {{- $selector := dict "labelSelector" (dict "matchLabels" (include "lanyard.selectorLabels" $ | fromYaml)) }}
  {{- range . }}
  - {{ merge (deepCopy .) $selector | toYaml | indent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* An HTTP probe. Takes path, and probe with the thresholds. */ -}}
{{- define "lanyard.probe" -}}
httpGet:
  path: {{ .path }}
  port: probes
{{- with .probe }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /*
GOMEMLIMIT for a container with these resources: 90 % of its memory limit, so that
Go collects garbage before the kernel ends the process. Nothing without a limit, and
nothing if the limit is not in bytes, Ki, Mi or Gi.
*/ -}}
{{- define "lanyard.goMemoryLimit" -}}
{{- $limit := (default dict (default dict .).limits).memory | default "" -}}
{{- $limit = kindIs "string" $limit | ternary $limit (int64 $limit | toString) -}}
{{- if regexMatch "^[0-9]+(Ki|Mi|Gi)?$" $limit -}}
{{- $bytes := regexFind "^[0-9]+" $limit | int64 -}}
{{- $unit := get (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) (regexFind "[KMG]i$" $limit) | default 1 -}}
{{- div (mul $bytes $unit 9) 10 -}}
{{- end -}}
{{- end -}}
