{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* Warnings about a fragile configuration, for NOTES.txt. */ -}}
{{- define "lanyard.warnings" -}}
{{- $v := .Values -}}
{{- $fails := eq "Fail" (include "lanyard.failurePolicy" .) -}}
{{- $guarded := include "lanyard.guarded" . -}}
{{- if not (or $v.image.registry $v.global.imageRegistry (contains "/" $v.image.repository)) }}
- "image.registry is empty: a node without the image looks for it at the default of its container runtime, usually docker.io/library, which does not have it."
{{- end }}
{{- if not (include "lanyard.policies" .) }}
- "This cluster is older than Kubernetes 1.30 and cannot have the guard and the fences. webhook.failurePolicy is {{ include "lanyard.failurePolicy" . }}."
{{- end }}
{{- if and (not $guarded) (not $fails) }}
- "webhook.failurePolicy is Ignore and no guard denies pods: while no replica responds, pods that need credentials start without them, and stay so until they are deleted."
{{- end }}
{{- if $fails }}
- "webhook.failurePolicy is Fail: while no replica responds, no pod can be created in the selected namespaces, whether it needs credentials or not."
{{- end }}
{{- if and $guarded (eq $v.webhook.reinvocationPolicy "Never") }}
- "webhook.reinvocationPolicy is Never: the guard denies pods to which another webhook adds a container after Lanyard."
{{- end }}
{{- $scaled := kindIs "invalid" $v.replicaCount }}
{{- $replicas := int $v.replicaCount }}
{{- /* With a URL and no replicas, the webhook runs outside the cluster. */}}
{{- $few := and (not $scaled) (lt $replicas 2) (not (and (eq $replicas 0) $v.webhook.url)) }}
{{- if $few }}
- "replicaCount is {{ $replicas }}: every time it is rescheduled, no replica responds. Use two or more."
{{- end }}
{{- if and (not $v.podDisruptionBudget.enabled) (or $scaled (gt $replicas 1)) }}
- "podDisruptionBudget.enabled is false: draining nodes can stop all replicas at the same time."
{{- end }}
{{- if and $v.podDisruptionBudget.enabled $few (kindIs "invalid" $v.podDisruptionBudget.maxUnavailable) }}
- "The PodDisruptionBudget requires {{ $v.podDisruptionBudget.minAvailable }} of {{ $replicas }} replicas to be available: nodes cannot be drained."
{{- end }}
{{- if not $v.metrics.enabled }}
- "metrics.enabled is false: unguarded ServiceAccounts, errors, and a certificate that is not renewed go unnoticed."
{{- end }}
{{- if not $v.rbac.create }}
- "rbac.create is false: the ServiceAccount {{ include "lanyard.serviceAccountName" . }}{{ if $v.checks.enabled }}, and for the checks {{ include "lanyard.checks" . }},{{ end }} needs the permissions that docs/operations/README.md lists."
{{- end }}
{{- if $v.hostNetwork }}
- "hostNetwork is true: Pod Security \"restricted\" forbids it, and two replicas on one node would need the same ports."
{{- end }}
{{- if and $v.test.enabled (include "lanyard.testExcluded" .) }}
- "test.namespace is {{ $v.test.namespace }}, where pods are never injected: there is no helm test. Install the release in a namespace of its own."
{{- end }}
{{- end -}}
