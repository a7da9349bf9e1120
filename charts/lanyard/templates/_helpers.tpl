{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* The base of all names: the release's name, which includes the chart's name. */ -}}
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

{{- /* The name of the Deployment and of the objects that belong to it. */ -}}
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

{{- /* The host of webhook.url, without its port; empty without webhook.url. */ -}}
{{- define "lanyard.urlHost" -}}
{{- with .Values.webhook.url -}}
{{- (urlParse .).hostname -}}
{{- end -}}
{{- end -}}

{{- /* The name by which API servers check the certificate. */ -}}
{{- define "lanyard.serverName" -}}
{{- include "lanyard.urlHost" . | default (include "lanyard.dnsName" .) -}}
{{- end -}}

{{- /* "true" if a host is an IP address. */ -}}
{{- define "lanyard.isIP" -}}
{{- if regexMatch "^([0-9.]+|.*:.*)$" . -}}
true
{{- end -}}
{{- end -}}

{{- /* The labels by which the Service and the Deployment select the pods. */ -}}
{{- define "lanyard.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- /*
The metadata of an object. Takes root, name and component; also labels,
annotations and namespace. Cluster-scoped objects set namespace to "".
The chart's own labels and annotations override commonLabels and
commonAnnotations.
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

{{- /* An image of this version, without a digest. Takes root and repository. */ -}}
{{- define "lanyard.taggedImage" -}}
{{- with .root.Values.image -}}
{{- with default .registry $.root.Values.global.imageRegistry }}{{ . }}/{{ end -}}
{{- $.repository }}:{{ default $.root.Chart.AppVersion .tag -}}
{{- end -}}
{{- end -}}

{{- define "lanyard.image" -}}
{{- include "lanyard.taggedImage" (dict "root" . "repository" .Values.image.repository) -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* The imagePullSecrets of a pod, with those of the parent chart, which may be names. */ -}}
{{- define "lanyard.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The Secret with the serving certificate, in the modes that use one. */ -}}
{{- define "lanyard.tlsSecret" -}}
{{- if eq .Values.certificates.mode "secret" -}}
{{- .Values.certificates.existingSecret -}}
{{- else -}}
{{ include "lanyard.webhook" . }}-tls
{{- end -}}
{{- end -}}

{{- /* "true" if the cluster has policies: ValidatingAdmissionPolicy is v1 since Kubernetes 1.30. */ -}}
{{- define "lanyard.policies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" if the guard is rendered. */ -}}
{{- define "lanyard.guard" -}}
{{- if and .Values.guard.enabled (include "lanyard.policies" .) -}}
true
{{- end -}}
{{- end -}}

{{- /* "true" if the guard denies pods, rather than warn about them. */ -}}
{{- define "lanyard.guarded" -}}
{{- if and (include "lanyard.guard" .) (has "Deny" .Values.guard.validationActions) -}}
true
{{- end -}}
{{- end -}}

{{- /* What happens to pods while no replica responds, see values.yaml. */ -}}
{{- define "lanyard.failurePolicy" -}}
{{- default (ternary "Ignore" "Fail" (eq "true" (include "lanyard.guarded" .))) .Values.webhook.failurePolicy -}}
{{- end -}}

{{- /* The namespaces that the guard never checks: a cluster must be able to start while no replica runs. */ -}}
{{- define "lanyard.unguardedNamespaces" -}}
{{- concat (list "kube-system") (splitList "," (include "lanyard.excludedNamespaces" .)) | uniq | join "," -}}
{{- end -}}

{{- /*
True in CEL for a pod that is not a mirror pod, does not opt out, and leaves no cloud to
an adopted webhook.
*/ -}}
{{- define "lanyard.celTakesPart" -}}
!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({})) &&
object.metadata.?annotations[?'lanyard.dev/inject'].orValue('') != 'false' &&
object.metadata.?labels[?'lanyard.dev/inject'].orValue('') != 'false'
{{- with include "lanyard.leavesNothingToPeers" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- /*
The paths above the token mount path, as a list in CEL. In a container, /var/run is usually a
link to /run. A test compares the list with annotations.IsInside.
*/ -}}
{{- define "lanyard.celPathsAbove" -}}
{{- $path := include "lanyard.tokenMountPath" . -}}
{{- $above := list -}}
{{- range uniq (list $path (regexReplaceAll "^/var/run/" $path "/run/") (regexReplaceAll "^/run/" $path "/var/run/")) -}}
{{- $path := . -}}
{{- $parts := splitList "/" . -}}
{{- range $i := untilStep 2 (len $parts) 1 -}}
{{- $dir := join "/" (slice $parts 0 $i) -}}
{{- if not (and (eq $dir "/var") (hasPrefix "/run/" (include "lanyard.tokenMountPath" $))) -}}
{{- $above = concat $above (list $dir (print $dir "/")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ uniq $above | sortAlpha | include "lanyard.celList" }}
{{- end -}}

{{- /*
True in CEL for a container c with something mounted at the token mount path or below it, or
with a read-only volume above it, below which the webhook mounts nothing. A test compares the
kinds of volumes with mutate.ReadOnlyKinds.
*/ -}}
{{- define "lanyard.celHasMount" -}}
{{- $always := list "secret" "configMap" "downwardAPI" "projected" "image" -}}
{{- $ifReadOnly := list "persistentVolumeClaim" "csi" "nfs" "iscsi" "fc" -}}
c.?volumeMounts.orValue([]).exists(m, (m.mountPath + '/').startsWith('{{ include "lanyard.tokenMountPath" . }}/') ||
  m.mountPath in {{ include "lanyard.celPathsAbove" . }} && (
    m.?readOnly.orValue(false) || object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (
      {{ include "lanyard.celList" $always }}.exists(kind, v[?kind].hasValue()) ||
      {{ include "lanyard.celList" $ifReadOnly }}.exists(kind, v[?kind].?readOnly.orValue(false))))))
{{- end -}}

{{- /*
True in CEL for the container .name that neither the annotations, own, of the pod leave out, nor a
peer.
*/ -}}
{{- define "lanyard.celSelected" -}}
('lanyard.dev/containers' in own ? {{ .name }} in own['lanyard.dev/containers'].split(',').map(name, name.trim()) :
  !({{ .name }} in own[?'lanyard.dev/skip-containers'].orValue('').split(',').map(name, name.trim()){{ include "lanyard.replacedContainers" .root }}))
{{- end -}}

{{- /*
True in CEL for a pod with a container that is not left out and has no token mount, or whose
annotations leave out so much that no container has.
*/ -}}
{{- define "lanyard.celLacksMount" -}}
[object.metadata.?annotations.orValue({})].exists(own, [object.spec.containers + object.spec.?initContainers.orValue([])].exists(all,
  [all.filter(c, !{{ include "lanyard.celHasMount" . | nindent 2 | trim }})].exists(without,
  without.exists(c, {{ include "lanyard.celSelected" (dict "root" . "name" "c.name") | nindent 2 | trim }}) ||
  without.size() == all.size() && ('lanyard.dev/containers' in own || 'lanyard.dev/skip-containers' in own))))
{{- end -}}

{{- /*
The words in CEL about such a pod: .words, unless its annotations leave out all of its containers.
It puts names together, and not containers: the API server checks the types of a message, and init
containers are of another type than containers.
*/ -}}
{{- define "lanyard.celWhy" -}}
[object.spec.?initContainers.orValue([]).map(c, c.name) + object.spec.containers.map(c, c.name)].map(all,
  [object.metadata.?annotations.orValue({})].exists(own, all.exists(c, {{ include "lanyard.celSelected" (dict "root" .root "name" "c") | nindent 2 | trim }})) ?
  {{ .words }} :
  'the annotations of the pod (lanyard.dev/containers, lanyard.dev/skip-containers) leave out all of its containers: ' +
  [all.join(', ')].map(names, names.size() > 1000 ? names.substring(0, 1000) + '...' : names)[0] + '. Correct the names. ')[0]
{{- end -}}

{{- /*
A namespaceSelector. Takes root; excluded, names of namespaces, comma-separated;
and optOut: whether the label lanyard.dev/inject of a namespace excludes it.
*/ -}}
{{- define "lanyard.namespaceSelector" -}}
{{- $user := .root.Values.webhook.namespaceSelector -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [{{ .excluded | replace "," ", " }}]
  {{- if .optOut }}
  - key: lanyard.dev/inject
    operator: NotIn
    values: [disabled, "false"]
  {{- end }}
  {{- with $user.matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $user.matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The annotations of the webhook configurations, including those that inject the caBundle. */ -}}
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
How the API server reaches a path. The caBundle is omitted if another program
writes it, since an upgrade would remove it.
*/ -}}
{{- define "lanyard.clientConfig" -}}
{{- with .root.Values.webhook.url -}}
url: {{ . }}{{ $.path }}
{{- else -}}
service:
  namespace: {{ include "lanyard.namespace" .root }}
  name: {{ include "lanyard.webhook" .root }}
  path: {{ .path }}
  {{- if ne (int .root.Values.service.port) 443 }}
  port: {{ .root.Values.service.port }}
  {{- end }}
{{- end }}
{{- if eq .root.Values.certificates.mode "secret" }}
caBundle: {{ .root.Values.certificates.caBundle | b64enc }}
{{- end }}
{{- end -}}

{{- /* How Prometheus verifies the certificate, if metrics.secure is set. */ -}}
{{- define "lanyard.metricsTLS" -}}
{{- $mode := .Values.certificates.mode -}}
serverName: {{ include "lanyard.serverName" . }}
ca:
  {{- if eq $mode "openshift" }}
  configMap:
    name: openshift-service-ca.crt
    key: service-ca.crt
  {{- else }}
  secret:
    name: {{ include "lanyard.webhook" . }}-{{ eq $mode "selfManaged" | ternary "ca" "tls" }}
    key: ca.crt
  {{- end }}
{{- end -}}

{{- define "lanyard.serviceMetadata" -}}
{{- $annotations := deepCopy .Values.service.annotations -}}
{{- if eq .Values.certificates.mode "openshift" -}}
{{- $_ := set $annotations "service.beta.openshift.io/serving-cert-secret-name" (include "lanyard.tlsSecret" .) -}}
{{- end -}}
{{- include "lanyard.metadata" (dict "root" . "name" (include "lanyard.webhook" .) "component" "server" "labels" .Values.service.labels "annotations" $annotations) -}}
{{- end -}}

{{- /* The label "job" of the metrics, by which the alerts select them. */ -}}
{{- define "lanyard.job" -}}
{{- $labels := (include "lanyard.serviceMetadata" . | fromYaml).labels -}}
{{- get $labels .Values.serviceMonitor.jobLabel | default (include "lanyard.webhook" .) -}}
{{- end -}}

{{- /* "true" if pods in test.namespace are never injected, so that there is no helm test. */ -}}
{{- define "lanyard.testExcluded" -}}
{{- if has .Values.test.namespace (include "lanyard.excludedNamespaces" . | splitList ",") -}}
true
{{- end -}}
{{- end -}}
