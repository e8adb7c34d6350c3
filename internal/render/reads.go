package render

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/task"
)

const (
	program = "/usr/bin/worker"
	target  = "target" // the volume that a worker writes
)

// The verbs of workers that have claims.
const (
	runVerb    = "run"
	serveVerb  = "serve"
	exportVerb = "export"
	backupVerb = "backup"
)

// OnlyReads reports whether the pod is a worker that has the claim to read from it, and cannot or does not write to it. Any user
// who can create pods can write our labels and owners, so the pod's command and its use of the claim count: a read-only mount is
// proof; for a device, which Kubernetes cannot mount read-only, the proof is that the worker has it as its source.
func OnlyReads(p *corev1.Pod, claim string) bool {
	if p.Labels[LabelApp] != App { // of others' pods we keep no containers
		return false
	}
	var has []string
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim {
			has = append(has, v.Name)
		}
	}
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for _, e := range p.Spec.EphemeralContainers {
		all = append(all, corev1.Container(e.EphemeralContainerCommon))
	}
	reads := false
	for _, c := range all {
		for _, m := range c.VolumeMounts {
			if !slices.Contains(has, m.Name) {
				continue
			}
			if !m.ReadOnly {
				return false
			}
			reads = true
		}
		for _, d := range c.VolumeDevices {
			if !slices.Contains(has, d.Name) {
				continue
			}
			if d.Name == target || !isWorker(c) {
				return false
			}
			reads = true
		}
	}
	return reads
}

func isWorker(c corev1.Container) bool {
	return len(c.Command) == 2 && c.Command[0] == program && len(c.Args) == 0 && slices.Contains([]string{runVerb, serveVerb, exportVerb, backupVerb}, c.Command[1])
}

// BootsEarly says whether a worker serves the disk that it fills to a guest meanwhile.
func BootsEarly(p *corev1.Pod) bool {
	var t task.Task
	return json.Unmarshal([]byte(p.Annotations[AnnTask]), &t) == nil && t.Early
}
