{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* What objects are named after: the release, with the chart's name in it. */ -}}
{{- define "lanyard.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The name of the Deployment and of what belongs to it. */ -}}
{{- define "lanyard.webhook" -}}
{{ include "lanyard.fullname" . }}-webhook
{{- end -}}

{{- define "lanyard.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "lanyard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lanyard.webhook" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "lanyard.dnsName" -}}
{{ include "lanyard.webhook" . }}.{{ include "lanyard.namespace" . }}.svc
{{- end -}}

{{- /* What the Service and the Deployment select the pods by. */ -}}
{{- define "lanyard.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- /*
The metadata of an object. Takes root, name and component; also labels,
annotations and namespace. Objects of the cluster set namespace to "".
What the chart sets is over commonLabels and commonAnnotations.
*/ -}}
{{- define "lanyard.metadata" -}}
{{- $own := include "lanyard.selectorLabels" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
name: {{ .name }}
{{- with ternary .namespace (include "lanyard.namespace" .root) (hasKey . "namespace") }}
namespace: {{ . }}
{{- end }}
labels:
  {{- mergeOverwrite (deepCopy .root.Values.commonLabels) (deepCopy (default dict .labels)) $own | toYaml | nindent 2 }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (deepCopy (default dict .annotations)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lanyard.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The Secret with the serving certificate, in the modes that have one. */ -}}
{{- define "lanyard.tlsSecret" -}}
{{- if eq .Values.certificates.mode "secret" -}}
{{- .Values.certificates.existingSecret -}}
{{- else -}}
{{ include "lanyard.webhook" . }}-tls
{{- end -}}
{{- end -}}

{{- /* "true" where the guard is rendered: ValidatingAdmissionPolicy is v1 since Kubernetes 1.30. */ -}}
{{- define "lanyard.guard" -}}
{{- if and .Values.guard.enabled (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" where the guard refuses pods, rather than warn of them. */ -}}
{{- define "lanyard.guarded" -}}
{{- if and (include "lanyard.guard" .) (has "Deny" .Values.guard.validationActions) -}}
true
{{- end -}}
{{- end -}}

{{- /* What becomes of pods while no replica is there, see values.yaml. */ -}}
{{- define "lanyard.failurePolicy" -}}
{{- default (ternary "Ignore" "Fail" (eq "true" (include "lanyard.guarded" .))) .Values.webhook.failurePolicy -}}
{{- end -}}

{{- /*
The namespaces whose accounts are looked at, as a namespaceSelector. Whatever
the user selects, kube-system and the release's own namespace are not among
them: what the cluster and the webhook need to come up must not wait for it.
*/ -}}
{{- define "lanyard.accountNamespaces" -}}
{{- $user := .Values.webhook.namespaceSelector -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [kube-system, {{ include "lanyard.namespace" . }}]
  {{- with $user.matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $user.matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The namespaces whose pods are looked at: of these, any opts out by its label. */ -}}
{{- define "lanyard.podNamespaces" -}}
{{- $selector := include "lanyard.accountNamespaces" . | fromYaml -}}
{{- $optOut := dict "key" (printf "%sinject" .Values.annotationPrefix) "operator" "NotIn" "values" (list "disabled") -}}
{{- $own := first $selector.matchExpressions -}}
{{- $_ := set $selector "matchExpressions" (concat (list $own $optOut) (rest $selector.matchExpressions)) -}}
{{- toYaml $selector -}}
{{- end -}}

{{- /* What certificates the webhook configurations need: annotations. */ -}}
{{- define "lanyard.registrationAnnotations" -}}
{{- $annotations := deepCopy .Values.webhook.annotations -}}
{{- $mode := .Values.certificates.mode -}}
{{- if eq $mode "certManager" -}}
{{- $certificate := ternary "tls" "ca" (not (empty .Values.certificates.issuerRef)) -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s-%s" (include "lanyard.namespace" .) (include "lanyard.webhook" .) $certificate) -}}
{{- else if eq $mode "openshift" -}}
{{- $_ := set $annotations "service.beta.openshift.io/inject-cabundle" "true" -}}
{{- end -}}
{{- toYaml $annotations -}}
{{- end -}}

{{- /*
How the apiserver reaches a path. The caBundle is left out where somebody else
writes it: each upgrade would take it away from them.
*/ -}}
{{- define "lanyard.clientConfig" -}}
service:
  namespace: {{ include "lanyard.namespace" .root }}
  name: {{ include "lanyard.webhook" .root }}
  path: {{ .path }}
  {{- if ne (int .root.Values.service.port) 443 }}
  port: {{ .root.Values.service.port }}
  {{- end }}
{{- if eq .root.Values.certificates.mode "secret" }}
caBundle: {{ .root.Values.certificates.caBundle | b64enc }}
{{- end }}
{{- end -}}

{{- /* "true" where pods of test.namespace are never injected, and helm test has nothing to test. */ -}}
{{- define "lanyard.testExcluded" -}}
{{- if has .Values.test.namespace (list "kube-system" (include "lanyard.namespace" .)) -}}
true
{{- end -}}
{{- end -}}
