{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /*
The peers of config.adopt: the annotations that ask for an identity, the other ones
that are read, and Lanyard's for the same identity; and the rules about pods, which the
guard has as well: the containers that the peer replaces, and the start of the
annotations by which a pod leaves the cloud to the peer. A test compares them with the
program's.
*/ -}}
{{- define "lanyard.peers" -}}
eks:
  identity: [eks.amazonaws.com/role-arn]
  others: [eks.amazonaws.com/audience, eks.amazonaws.com/token-expiration, eks.amazonaws.com/sts-regional-endpoints]
  lanyard: [aws-role-arn]
azure:
  identity: [azure.workload.identity/client-id]
  others: [azure.workload.identity/tenant-id, azure.workload.identity/service-account-token-expiration]
  lanyard: [azure-client-id]
  binding: azure.workload.identity/use-
gcp:
  replaces: [gcloud-setup]
  identity: [cloud.google.com/workload-identity-provider, cloud.google.com/service-account-email]
  others: [cloud.google.com/audience, cloud.google.com/token-expiration, cloud.google.com/gcloud-run-as-user]
  lanyard: [gcp-workload-identity-provider, gcp-service-account]
gke:
  identity: [iam.gke.io/gcp-service-account]
  others: []
  lanyard: [gcp-workload-identity-provider, gcp-service-account]
{{- end -}}

{{- /* The end of the guard's list of containers that are left out. */ -}}
{{- define "lanyard.replacedContainers" -}}
{{- $peers := include "lanyard.peers" . | fromYaml -}}
{{- range .Values.config.adopt }}{{ with (get $peers .).replaces }} + {{ include "lanyard.celList" . }}{{ end }}{{ end -}}
{{- end -}}

{{- /* The end of the guard's condition: the pod leaves no cloud to a peer. */ -}}
{{- define "lanyard.leavesNothingToPeers" -}}
{{- $peers := include "lanyard.peers" . | fromYaml -}}
{{- range .Values.config.adopt }}{{ with (get $peers .).binding -}}
&& !object.metadata.?annotations.orValue({}).exists(key,
  key.startsWith('{{ . }}') && object.metadata.annotations[key].lowerAscii() == 'true')
{{- end }}{{ end -}}
{{- end -}}

{{- /* A list of strings in CEL. */ -}}
{{- define "lanyard.celList" -}}
['{{ join "', '" . }}']
{{- end -}}

{{- /*
True in CEL for the ServiceAccounts with something to translate: a peer's identity
without Lanyard's, and a change of what was translated, or of what it was made of. The
webhook is not called for other writes: they never wait for it.
*/ -}}
{{- define "lanyard.hasSomethingToAdopt" -}}
{{- $adopted := "'lanyard.dev/adopted'" -}}
{{- $peers := include "lanyard.peers" . | fromYaml -}}
{{- $read := list -}}
[has(object.metadata.annotations) ? object.metadata.annotations : {}].exists(now,
[request.operation == 'UPDATE' && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}].exists(before,
{{- range .Values.config.adopt }}
{{- $peer := get $peers . }}
{{- $read = concat $read $peer.identity $peer.others }}
{{- $own := list }}
{{- range $peer.lanyard }}{{ $own = append $own (print "lanyard.dev/" .) }}{{ end }}
  {{ include "lanyard.celList" $peer.identity }}.all(key, key in now && now[key] != '') &&
  !{{ include "lanyard.celList" $own }}.exists(key, key in now) ||
{{- end }}
  ({{ $adopted }} in now || {{ $adopted }} in before) && (
    request.operation != 'UPDATE' ||
    {{ include "lanyard.celList" $read }}.exists(key,
      (key in now) != (key in before) || key in now && now[key] != before[key]) ||
    now.exists(key, key.startsWith('lanyard.dev/') && !(key in before && before[key] == now[key])) ||
    before.exists(key, key.startsWith('lanyard.dev/') && !(key in now)))))
{{- end -}}
