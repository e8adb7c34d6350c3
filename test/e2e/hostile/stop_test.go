//go:build e2e

package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// stops are ways to keep a shared program busy. The victim is served meanwhile.
var stops = attempts{
	"a guest agent that never answers": func(h *hostile) { h.endless("mute", "sleep 3600") },
	"a guest agent that never ends":    func(h *hostile) { h.endless("loud", "while :; do echo talktalktalktalktalktalktalktalk; done") },
	"objects that make no sense":       nonsense,
	"all places of the upload proxy":   allPlaces,
	"sources that never answer":        muteSources,
	"finalizers that nobody removes":   finalizers,
	"hundreds of volumes":              flood,
	"a layer that takes an hour":       craftedLayers,
	"floods of reviews":                floodReviews,
	"floods of scrapes":                floodScrapes,
}

// endless: the tenant's machine has pods that say to be its launcher, in which the command that holds the guest still never
// comes to an end. Snapshots of other machines are taken meanwhile.
func (h *hostile) endless(name, script string) {
	vm, i := h.bait(name)
	for n := range 5 {
		pod := fmt.Sprintf("%s-launcher-%d", name, n)
		h.pod(framework.Pod{Name: pod, Script: "sleep 3600", Labels: map[string]string{
			"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(i.UID), "kubevirt.io/domain": i.Name,
		}, Change: func(p *corev1.Pod) {
			p.OwnerReferences = controlledBy("kubevirt.io/v1", "VirtualMachineInstance", i)
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "bin", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			main := &p.Spec.Containers[0]
			main.Name = "compute"
			main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "bin", MountPath: "/usr/bin"})
			main.Command = []string{"/bin/sh", "-ec", `printf '#!/bin/sh\n` + script + `\n' > /usr/bin/launcher; chmod 755 /usr/bin/launcher; sleep 3600`}
		}})
	}
	for n := range 5 {
		h.own.WaitRunning(fmt.Sprintf("%s-launcher-%d", name, n))
	}
	for n := range 3 {
		h.make(vmSnapshot(fmt.Sprintf("%s-%d", name, n), vm.Name))
	}
	y := h.yard(h.victim)
	y.SnapshotMachine("meanwhile-"+name, h.machine.Name)
	h.served(name)
	h.machineRuns()
}

func vmSnapshot(name, machine string) *snapshotv1.VirtualMachineSnapshot {
	group := "kubevirt.io"
	s := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: machine}
	return s
}

// senseless are objects that no client would make. Which of them are refused does not matter.
const senseless = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: senseless-empty}
spec: {}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: senseless-both}
spec: {source: {}, sourceRef: {kind: Nothing, name: ""}, storage: {}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: senseless-url}
spec: {source: {http: {url: "http://[::1"}}, storage: {resources: {requests: {storage: 1Ei}}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: senseless-file}
spec: {source: {http: {url: "file:///etc/shadow"}}, storage: {resources: {requests: {storage: 1Mi}}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: senseless-size}
spec: {source: {blank: {}}, storage: {resources: {requests: {storage: "-1"}}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: senseless}
spec: {source: {}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataSource
metadata: {name: senseless-self}
spec: {source: {dataSource: {name: senseless-self, namespace: default}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataImportCron
metadata: {name: senseless}
spec: {managedDataSource: "", schedule: "", template: {spec: {}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataImportCron
metadata: {name: senseless-schedule}
spec: {managedDataSource: senseless-schedule, schedule: "@every -1s", template: {spec: {source: {registry: {}}, storage: {}}}}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: VolumeImportSource
metadata: {name: senseless}
spec: {}
---
apiVersion: cdi.kubevirt.io/v1beta1
kind: VolumeCloneSource
metadata: {name: senseless}
spec: {source: {kind: PersistentVolumeClaim, name: ""}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: senseless-import}
spec: {accessModes: [ReadWriteOnce], storageClassName: immediate, resources: {requests: {storage: 1Mi}}, dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeImportSource, name: senseless}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: senseless-clone}
spec: {accessModes: [ReadWriteOnce], storageClassName: immediate, resources: {requests: {storage: 1Mi}}, dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: senseless}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: senseless-upload, annotations: {cdi.kubevirt.io/storage.upload.target: "", cdi.kubevirt.io/storage.contentType: nonsense}}
spec: {accessModes: [ReadOnlyMany], storageClassName: immediate, resources: {requests: {storage: 1Mi}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: senseless}
spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: senseless-template}
spec: {runStrategy: Always}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: senseless-volumes}
spec:
  runStrategy: Always
  dataVolumeTemplates: [{metadata: {name: ""}, spec: {}}, {metadata: {name: twice}, spec: {}}, {metadata: {name: twice}, spec: {}}]
  volumeClaimTemplates: [{metadata: {name: ""}, spec: {}}]
  template: {spec: {domain: {devices: {disks: [{name: none}]}}, volumes: [{name: root}, {name: other, dataVolume: {name: ""}}]}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: senseless-alone}
spec: {domain: {devices: {}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: senseless-many}
spec: {domain: {devices: {}, cpu: {cores: 2147483647}, memory: {guest: "0"}}, volumes: [{name: a, persistentVolumeClaim: {claimName: none}}]}
---
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata: {name: senseless}
spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: senseless}, virtualMachineSnapshotName: senseless, patches: ["nonsense", '{"op":"remove","path":"/spec/template"}']}
---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata: {name: senseless}
spec: {cpu: {guest: 0}, memory: {guest: "0"}}
`

// nonsense: objects that make no sense, and snapshots whose recorded content does not. Other tenants are served as before, and no
// reconciler panics, which the end of the test looks at.
func nonsense(h *hostile) {
	for _, text := range strings.Split(senseless, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			h.t().Fatal(err)
		}
		h.tries(u)
	}
	for n, machine := range []string{`null`, `{}`, `{"metadata":{"name":"x"},"spec":{}}`, `{"spec":{"template":{"spec":{"domain":{},"volumes":[{"name":"a"}]}}}}`} {
		s := vmSnapshot(fmt.Sprintf("senseless-%d", n), "senseless")
		h.make(s)
		text := fmt.Sprintf(`{"apiVersion":"snapshot.kubevirt.io/v1beta1","kind":"VirtualMachineSnapshotContent","metadata":{"name":"vmsnapshot-content-%s"},`+
			`"spec":{"virtualMachineSnapshotName":%q,"source":{"virtualMachine":%s},"volumeBackups":[{"volumeName":"a","persistentVolumeClaim":{}}]},`+
			`"status":{"readyToUse":true}}`, s.UID, s.Name, machine)
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			h.t().Fatal(err)
		}
		h.tries(u)
		group := "kubevirt.io"
		r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		r.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: fmt.Sprintf("restored-%d", n)}
		r.Spec.VirtualMachineSnapshotName = s.Name
		h.tries(r)
	}
	h.served("nonsense")
	if n := h.panics(); n != 0 {
		h.t().Errorf("reconcilers panicked %d times", n)
	}
}

// allPlaces: the tenant begins more uploads than there are places and sends next to nothing. The victim uploads meanwhile.
func allPlaces(h *hostile) {
	mine := *h.own
	env := *h.own.Env
	env.Client = h.asCore
	mine.Env = &env
	theirs, door := fixture.NewUploads(&mine), fixture.NewUploads(h.victim)
	theirs.CreateUpload("places", "16Mi")
	door.CreateUpload("upload", "16Mi")
	ctx, cancel := context.WithCancel(h.own.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	token, pool := theirs.RequestToken("places"), x509.NewCertPool()
	authority, err := os.ReadFile(theirs.CA)
	if err != nil {
		h.t().Fatal(err)
	}
	pool.AppendCertsFromPEM(authority)
	to := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	for range 300 {
		all.Go(func() { trickle(ctx, to, theirs.URL+"/v1beta1/upload", token) })
	}
	disk := fixture.DiskImage(8)
	door.Answers("200", "", door.RequestToken("upload"), "/v1beta1/upload", "-T", door.WriteFile("disk.img", disk), "-X", "POST")
	door.UntilPhase("upload", cdiv1.Succeeded)
	door.HoldsRaw("upload", disk)
}

// trickle begins an upload again and again, and sends its first byte only.
func trickle(ctx context.Context, to *http.Client, url, token string) {
	for ctx.Err() == nil {
		body, in := io.Pipe()
		stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			return
		}
		req.ContentLength = 16 * fixture.MiB
		req.Header.Set("Authorization", "Bearer "+token)
		go func() { _, _ = in.Write([]byte{0}) }()
		answer, err := to.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		stop()
		_ = body.CloseWithError(io.EOF)
	}
}

// muteSources: the tenant's volumes and crons have a source that accepts and says nothing. The victim's cron imports.
func muteSources(h *hostile) {
	mute := h.own.Serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	for n := range 8 {
		dv := h.clone(fmt.Sprintf("silent-%d", n))
		dv.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: mute + "/disk.img"}}
		h.make(dv)
		c := h.cron(fmt.Sprintf("silent-cron-%d", n), nil)
		c.Spec.Template.Spec.Source = dv.Spec.Source
		h.make(c)
	}
	h.victim.CreateObject(&cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.victim.Namespace, Name: "meanwhile"},
		Spec: cdiv1.DataImportCronSpec{Schedule: "* * * * *", ManagedDataSource: "meanwhile", Template: cdiv1.DataVolume{Spec: func() cdiv1.DataVolumeSpec {
			s := h.clone("").Spec
			s.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: h.victim.Web.URL + "/disk.img"}}
			return s
		}()}},
	})
	h.victim.Holds(h.victim.WaitCronUpToDate("meanwhile", ""), fixture.DiskImage(24), 40*fixture.MiB)
}

// finalizers: the tenant keeps everything of a volume from going away, its worker too.
func finalizers(h *hostile) {
	const mine = "tenant.example.org/stays"
	release := h.own.Web.Hold()
	defer release()
	dv := h.clone("stays")
	dv.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: h.own.Web.URL + "/disk.img"}}
	h.make(dv)
	h.own.UntilPhase("stays", cdiv1.ImportInProgress)
	objects := []client.Object{
		&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "stays"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "importer-stays"}},
	}
	patch := func(ctx context.Context, finalizers string) {
		for _, obj := range objects {
			obj.SetNamespace(h.own.Namespace)
			if err := h.as.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))); client.IgnoreNotFound(err) != nil {
				h.t().Errorf("change the finalizers of %T: %v", obj, err)
			}
		}
	}
	patch(h.own.Context(), `["`+mine+`"]`)
	defer patch(context.WithoutCancel(h.own.Context()), `null`) // the namespace is to go away
	for _, obj := range objects {
		if err := h.as.Delete(h.own.Context(), obj); client.IgnoreNotFound(err) != nil {
			h.t().Fatal(err)
		}
	}
	h.served("finalizers")
}

// flood: the tenant makes hundreds of volumes that will never be filled.
func flood(h *hostile) {
	for n := range 200 {
		dv := h.clone(fmt.Sprintf("flood-%d", n))
		class := "no-such-class"
		dv.Spec.Source, dv.Spec.Storage.StorageClassName = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, &class
		h.make(dv)
	}
	h.served("flood")
}
