package render

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/task"
)

// TestOnlyReads: our workers that read are known by what they can do; what looks like one and can write is none.
func TestOnlyReads(t *testing.T) {
	made := func(w Worker, change func(*corev1.Pod)) *corev1.Pod {
		p, err := w.Pod()
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(p)
		}
		return p
	}
	disk, device, other := &Disk{Claim: "disk"}, &Disk{Claim: "disk", Block: true}, &Disk{Claim: "other"}
	reader := Worker{Command: "run", Target: other, Source: disk}
	server := Worker{Command: "serve", Source: device}
	exported, err := Export{Name: "out", Disks: []Exported{{Name: "a", Disk: *disk, Content: task.Disk}, {Name: "b", Disk: Disk{Claim: "b", Block: true}}}}.Pod()
	if err != nil {
		t.Fatal(err)
	}
	first := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"reads a file":              {made(reader, nil), true},
		"reads a device":            {made(server, nil), true},
		"exports":                   {exported, true},
		"fills":                     {made(Worker{Command: "run", Target: disk}, nil), false},
		"fills a device":            {made(Worker{Command: "run", Target: device}, nil), false},
		"has another":               {made(Worker{Command: "run", Target: other}, nil), false},
		"another program, device":   {made(server, func(p *corev1.Pod) { first(p).Command = []string{"/bin/sh", "serve"} }), false},
		"another verb, device":      {made(server, func(p *corev1.Pod) { first(p).Command[1] = "write" }), false},
		"arguments, device":         {made(server, func(p *corev1.Pod) { first(p).Args = []string{"x"} }), false},
		"no command, device":        {made(server, func(p *corev1.Pod) { first(p).Command = nil }), false},
		"somebody else's label":     {made(server, func(p *corev1.Pod) { p.Labels[LabelApp] = "mine" }), false},
		"mounted to be written":     {made(reader, func(p *corev1.Pod) { first(p).VolumeMounts[2].ReadOnly = false }), false},
		"a second container writes": {made(reader, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, writes("source")) }), false},
		"it is prepared":            {made(reader, func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{writes("source")} }), false},
		"somebody debugs it": {made(reader, func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(writes("source"))}}
		}), false},
		"a sidecar without it":        {made(reader, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, writes("target")) }), true},
		"nobody says how it is taken": {made(reader, func(p *corev1.Pod) { p.Spec.Containers = nil }), false},
	} {
		if got := OnlyReads(c.pod, "disk"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func writes(volume string) corev1.Container {
	return corev1.Container{Name: "more", VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/x"}}}
}
