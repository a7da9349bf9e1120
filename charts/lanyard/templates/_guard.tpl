{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* What the guard looks at is what the webhooks look at: it knows each opt-out that they know. */ -}}
{{- define "lanyard.guardSpec" -}}
{{- $values := .root.Values -}}
{{- $spec := .object.spec -}}
{{- if eq .object.kind "ValidatingAdmissionPolicyBinding" -}}
{{- $_ := set $spec "validationActions" $values.guard.validationActions -}}
{{- else if hasSuffix "-pods" .object.metadata.name -}}
{{- $_ := set $spec.matchConstraints "namespaceSelector" (include "lanyard.podNamespaces" .root | fromYaml) -}}
{{- with $values.webhook.objectSelector -}}
{{- $_ := set $spec.matchConstraints "objectSelector" . -}}
{{- end -}}
{{- $_ := set $spec "matchConditions" (concat $spec.matchConditions $values.webhook.matchConditions) -}}
{{- else -}}
{{- $_ := set $spec.matchConstraints "namespaceSelector" (include "lanyard.accountNamespaces" .root | fromYaml) -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}
