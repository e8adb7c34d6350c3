package restore

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/testing/golden"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/virtctl/drill"
)

// busy is a machine that others see, with a probe of its guest.
var busy = strings.Replace(strings.Replace(web, "template: {metadata: {", "template: {metadata: {labels: {app: web, tier: front}, ", 1), "networks: ",
	"hostname: web, subdomain: front, startStrategy: Paused, readinessProbe: {exec: {command: [\"true\"]}}, livenessProbe: {tcpSocket: {port: 22}}, networks: ", 1)

func copyOfWeb(t *testing.T, machine string, line, trust bool) (*plan, drill.Sign, string, error) {
	t.Helper()
	o := Options{Name: "web", drill: "drill-web-abcde", Early: true, Start: true, Trust: trust}
	p, err := planOf(manifestOf(t, machine), digest, o, inBackups())
	if err != nil {
		t.Fatal(err)
	}
	p.aids = &aids{}
	sign, note, err := isolate(p, o, line)
	return p, sign, note, err
}

// TestIsolate: the copy of a drill has no network, no label that a Service selects, no name in the DNS, and runs once; all that is made has the drill's label.
func TestIsolate(t *testing.T) {
	p, sign, _, err := copyOfWeb(t, busy, false, false)
	if err != nil || sign != drill.Probe {
		t.Fatalf("%s %v", sign, err)
	}
	spec := p.machine.Spec.Template.Spec
	if spec.Networks != nil || spec.Domain.Devices.Interfaces != nil || spec.Domain.Devices.AutoattachPodInterface == nil || *spec.Domain.Devices.AutoattachPodInterface ||
		spec.Subdomain != "" || len(p.machine.Spec.Template.ObjectMeta.Labels) != 0 {
		t.Errorf("others see it: %+v", spec)
	}
	if *p.machine.Spec.RunStrategy != kubevirt.RunOnce || spec.StartStrategy != nil || spec.LivenessProbe != nil || spec.ReadinessProbe == nil || spec.Hostname != "web" {
		t.Errorf("it runs as %+v", spec)
	}
	if p.machine.Name != "drill-web-abcde" || len(p.machine.Labels) != 1 || !spec.Volumes[0].BootEarly {
		t.Errorf("it is %+v", p.machine.ObjectMeta)
	}
	for what, labels := range map[string]map[string]string{"machine": p.machine.Labels, "disk": p.machine.Spec.DataVolumeTemplates[0].ObjectMeta.Labels,
		"source": p.disks[0].source.Labels, "aids": p.aids.labels} {
		if labels[names.Drill] != "drill-web-abcde" {
			t.Errorf("the %s has labels %v", what, labels)
		}
	}
	if p.machine.Annotations[names.DrillOf] != "web" {
		t.Errorf("it is a drill of %v", p.machine.Annotations)
	}
}

// TestSign: a probe that asks over the network cannot be waited for, and that is said.
func TestSign(t *testing.T) {
	probe := func(p string) string {
		return strings.Replace(web, "networks: ", "readinessProbe: "+p+", networks: ", 1)
	}
	for name, c := range map[string]struct {
		machine string
		line    bool
		want    drill.Sign
		kept    bool
		note    string
	}{
		"a command in the guest": {probe("{exec: {command: [a]}}"), false, drill.Probe, true, ""},
		"the agent's ping":       {probe("{guestAgentPing: {}}"), false, drill.Probe, true, ""},
		"a port":                 {probe("{tcpSocket: {port: 80}}"), false, drill.Agent, false, "over the network"},
		"a page":                 {probe("{httpGet: {port: 80}}"), false, drill.Agent, false, "over the network"},
		"no probe":               {web, false, drill.Agent, false, ""},
		"a line":                 {probe("{exec: {command: [a]}}"), true, drill.Console, false, ""},
	} {
		p, sign, note, err := copyOfWeb(t, c.machine, c.line, false)
		if err != nil || sign != c.want || (p.machine.Spec.Template.Spec.ReadinessProbe != nil) != c.kept || (note != "") != (c.note != "") || !strings.Contains(note, c.note) {
			t.Errorf("%s: %s %q %v", name, sign, note, err)
		}
	}
}

// TestDrillSharesNothing: what the copy would write to beside its own disks is refused, also if the set is trusted. What it only reads is not.
func TestDrillSharesNothing(t *testing.T) {
	volume := func(v string) string {
		return strings.Replace(web, "volumes: [", "volumes: [{name: more, "+v+"}, ", 1)
	}
	for name, machine := range map[string]string{
		"another claim":        volume("persistentVolumeClaim: {claimName: customers}"),
		"another DataVolume":   volume("dataVolume: {name: customers}"),
		"a disk of the node":   volume("hostDisk: {path: /dev/sda, type: Disk}"),
		"a claim under a copy": volume("ephemeral: {persistentVolumeClaim: {claimName: customers}}"),
		"a server":             volume("nbd: {host: {name: it}, export: x}"),
		"a container":          volume("container: {image: i}"),
		"a memory dump":        volume("memoryDump: {claimName: d}"),
		"a source at the disk": strings.Replace(web, "{name: root, disk: {bus: virtio}}", "{name: root, disk: {bus: virtio}, source: {pvc: {claimname: customers}}}", 1),
	} {
		if _, _, _, err := copyOfWeb(t, machine, false, true); err == nil || !strings.Contains(err.Error(), "leave everything but its own disks alone") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, machine := range map[string]string{
		"a Secret": volume("secret: {secretName: s}"), "a ConfigMap": volume("configMap: {name: c}"), "user data": volume("cloudInitNoCloud: {secretRef: {name: s}}"),
	} {
		if _, _, _, err := copyOfWeb(t, machine, false, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLabelOfADrill: a machine that is restored permanently never has the label by which drills are removed.
func TestLabelOfADrill(t *testing.T) {
	labelled := strings.Replace(web, "labels: {app: web}", "labels: {app: web, berth.dev/restore-drill: web}", 1)
	p, err := planOf(manifestOf(t, labelled), digest, Options{Name: "web"}, inBackups())
	if err != nil || p.machine.Labels["app"] != "web" || p.machine.Labels[names.Drill] != "" {
		t.Errorf("%v %v", p, err)
	}
}

// TestReport: what people read.
func TestReport(t *testing.T) {
	at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	made := &copied{moment: &backup.Manifest{Checkpoint: "b2", Created: at.Add(-time.Hour)},
		order: drill.Order{Name: "drill-web-abcde", Since: at, Sign: drill.Console, Line: regexp.MustCompile("login:")}}
	o := Options{Name: "web", From: "backups/web"}
	var out strings.Builder
	good := reportOf(o, made, drill.Outcome{Result: drill.Passed, Message: "it came up", Up: 21_340 * time.Millisecond, Full: time.Minute, Last: []string{"login:"}}, nil)
	good.Write(&out)
	made.note = "its readiness probe asks over the network, which the copy does not have"
	bad := reportOf(o, made, drill.Outcome{Result: drill.NotUp, Message: "nothing came", Last: []string{"no bootable device", ""}}, errors.New("still there: VirtualMachine drill-web-abcde"))
	bad.Write(&out)
	golden.Equal(t, "testdata/reports.txt", out.String())
	if !good.Good() || bad.Good() || good.Console != nil || len(bad.Console) != 2 {
		t.Errorf("%+v %+v", good, bad)
	}
}

// TestPreferFiles: a disk of a machine that starts early is a file if its class has such claims and the machine does not say otherwise, because a machine can start with it early.
func TestPreferFiles(t *testing.T) {
	block, file := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	both := []cdiv1.ClaimPropertySet{{VolumeMode: &block}, {VolumeMode: &file}}
	for name, c := range map[string]struct {
		said *corev1.PersistentVolumeMode
		sets []cdiv1.ClaimPropertySet
		want *corev1.PersistentVolumeMode
	}{
		"the class has both":     {nil, both, &file},
		"the class has no files": {nil, both[:1], nil},
		"the class says nothing": {nil, nil, nil},
		"the machine says Block": {&block, both, &block},
	} {
		s := &cdiv1.StorageSpec{VolumeMode: c.said}
		preferFiles(s, &cdiv1.StorageProfile{Status: cdiv1.StorageProfileStatus{ClaimPropertySets: c.sets}})
		if diff := cmp.Diff(c.want, s.VolumeMode); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	preferFiles(&cdiv1.StorageSpec{}, nil) // a class without a profile
}
