{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* What makes a setup fragile, for NOTES.txt. */ -}}
{{- define "lanyard.warnings" -}}
{{- $v := .Values -}}
{{- $fails := eq "Fail" (include "lanyard.failurePolicy" .) -}}
{{- $guarded := include "lanyard.guarded" . -}}
{{- if not (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
- "This cluster is older than Kubernetes 1.30 and cannot have the guard. webhook.failurePolicy is {{ include "lanyard.failurePolicy" . }}."
{{- end }}
{{- if and (not $guarded) (not $fails) }}
- "webhook.failurePolicy is Ignore and no guard refuses pods: while no replica answers, pods that ask for an identity start without it, and stay so."
{{- end }}
{{- if $fails }}
- "webhook.failurePolicy is Fail: while no replica answers, no pod is created in the selected namespaces, whether it asks for an identity or not."
{{- end }}
{{- if and $guarded (eq $v.webhook.reinvocationPolicy "Never") }}
- "webhook.reinvocationPolicy is Never: the guard refuses pods to which another webhook adds a container after Lanyard."
{{- end }}
{{- if lt (int $v.replicaCount) 2 }}
- "replicaCount is {{ $v.replicaCount }}: whenever that replica is moved, none answers. Two are better."
{{- end }}
{{- if and (not $v.podDisruptionBudget.enabled) (gt (int $v.replicaCount) 1) }}
- "podDisruptionBudget.enabled is false: draining nodes may take all replicas at once."
{{- end }}
{{- if and $v.podDisruptionBudget.enabled (le (int $v.replicaCount) 1) (kindIs "invalid" $v.podDisruptionBudget.maxUnavailable) }}
- "The PodDisruptionBudget wants {{ $v.podDisruptionBudget.minAvailable }} of {{ $v.replicaCount }} replicas available: nodes cannot be drained."
{{- end }}
{{- if not $v.metrics.enabled }}
- "metrics.enabled is false: nobody is told of unguarded service accounts, of errors, or of a certificate that is not renewed."
{{- end }}
{{- if not $v.rbac.create }}
- "rbac.create is false: the account {{ include "lanyard.serviceAccountName" . }} needs the rights that docs/operations.md lists."
{{- end }}
{{- if $v.hostNetwork }}
- "hostNetwork is true: Pod Security \"restricted\" forbids that, and two replicas on one node would want the same ports."
{{- end }}
{{- if include "lanyard.testExcluded" . }}
- "test.namespace is {{ $v.test.namespace }}, whose pods never get an identity: there is no helm test. The release should be in a namespace of its own."
{{- end }}
{{- end -}}
