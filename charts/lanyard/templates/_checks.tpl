{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* The name of the ServiceAccount of the checks, and of its roles. */ -}}
{{- define "lanyard.checks" -}}
{{ include "lanyard.fullname" . }}-checks
{{- end -}}

{{- /* The name of a CronJob, which cannot be longer than 52. Takes root and name. */ -}}
{{- define "lanyard.checkName" -}}
{{ include "lanyard.fullname" .root | trunc 41 | trimSuffix "-" }}-{{ .name }}
{{- end -}}

{{- /* The image of the command line: lanyard next to the webhook's image. */ -}}
{{- define "lanyard.checksImage" -}}
{{- $repository := regexReplaceAll "[^/]*$" .Values.image.repository "lanyard" -}}
{{- .Values.checks.image | default (include "lanyard.taggedImage" (dict "root" . "repository" $repository)) -}}
{{- end -}}

{{- /* A CronJob that runs the command line. Takes root, name, schedule and args. */ -}}
{{- define "lanyard.check" -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  {{- include "lanyard.metadata" (dict "root" .root "name" (include "lanyard.checkName" .) "component" "checks") | nindent 2 }}
spec:
  schedule: {{ .schedule | quote }}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 1
  jobTemplate:
    spec:
      activeDeadlineSeconds: 600
      backoffLimit: 3
      # Exit code 1 means findings, which a retry would report again. Exit code 2 means that
      # the command could not decide, and a retry may succeed.
      podFailurePolicy:
        rules:
          - action: FailJob
            onExitCodes:
              containerName: lanyard
              operator: In
              values: [1]
      template:
        metadata:
          labels:
            {{- $own := dict "app.kubernetes.io/component" "checks" }}
            {{- mergeOverwrite (deepCopy .root.Values.commonLabels) (include "lanyard.selectorLabels" .root | fromYaml) $own | toYaml | nindent 12 }}
          {{- with .root.Values.commonAnnotations }}
          annotations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          serviceAccountName: {{ include "lanyard.checks" .root }}
          automountServiceAccountToken: true
          enableServiceLinks: false
          restartPolicy: Never
          {{- include "lanyard.imagePullSecrets" .root | trim | nindent 10 }}
          {{- with .root.Values.nodeSelector }}
          nodeSelector:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .root.Values.tolerations }}
          tolerations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- toYaml .root.Values.podSecurityContext | nindent 12 }}
          containers:
            - name: lanyard
              image: {{ include "lanyard.checksImage" .root | quote }}
              imagePullPolicy: {{ .root.Values.image.pullPolicy }}
              args:
                {{- toYaml .args | nindent 16 }}
              resources:
                requests:
                  cpu: 10m
                  memory: 64Mi
                limits:
                  memory: 256Mi
              securityContext:
                {{- toYaml .root.Values.securityContext | nindent 16 }}
{{- end -}}
