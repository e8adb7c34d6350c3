{{/* The controller's arguments, as JSON. What is as Berth has it by itself is left out. */}}
{{- define "berth.args" -}}
{{- $args := list -}}
{{- if ne .Values.sides "all" -}}{{- $args = append $args (printf "--controllers=%s" .Values.sides) -}}{{- end -}}
{{- if .Values.emulation -}}{{- $args = append $args "--allow-emulation" -}}{{- end -}}
{{- $gates := join "," .Values.featureGates -}}
{{- if ne $gates "HonorWaitForFirstConsumer" -}}{{- $args = append $args (printf "--feature-gates=%s" $gates) -}}{{- end -}}
{{- toJson $args -}}
{{- end -}}
