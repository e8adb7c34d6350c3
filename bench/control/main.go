// Command control measures the volume controller alone: many DataVolumes held, then all bound, then clones of one of them, by
// a real API server, scheduler and volume binder, on nodes that kwok simulates and whose workers report Done at once. It does so
// twice: in a cluster that has nothing else, and beside thousands of pods and claims that are none of its business.
//
//	bin/measure/control [-n 1000] [-clones 100] [-pods 10000] [-claims 10000]
//	bin/measure/control -peers [-n 1000]
//	bin/measure/control -writes [-n 50] [-only Berth]
//
// The second form measures CDI's controller and ours in turn, in the same way; the third counts what each of them writes, or one. It needs bin/kubebox (the control plane), builds kwok out of
// hack/kwok and CDI out of hack/peers, and writes results.md, peers.md or writes.md: time, write requests, CPU and memory of the controller, and the
// writes it makes when there is nothing to do.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/simulated"
)

const (
	namespace = "bench"
	className = "waits"
	idleFor   = 60 * time.Second
	// patience is for the slowest machine that is still worth measuring.
	patience = 30 * time.Minute
)

// scene holds the cluster and the measurements of one run.
type scene struct {
	program         program
	only            string // the name of the one program that is measured; empty: all
	volumes, clones int
	brief           bool // consumers end when their claims are bound
	csi             bool // the class is a simulated CSI driver's; otherwise its volumes are there, one for each claim
	audited         bool // every write is counted by what it is
	pods, claims    int  // of others
}

func main() {
	log.SetFlags(0)
	s := scene{program: ours}
	flag.IntVar(&s.volumes, "n", 1000, "how many volumes")
	flag.IntVar(&s.clones, "clones", 100, "how many clones of one of them")
	flag.IntVar(&s.pods, "pods", 10000, "how many pods of others, in the second run")
	flag.IntVar(&s.claims, "claims", 10000, "how many claims of others, in the second run")
	peers := flag.Bool("peers", false, "CDI's controller and ours, each with a quarter of the volumes and with all of them, and with static ones; no clones, nobody else")
	writes := flag.Bool("writes", false, "CDI's controller and ours, what each writes for a volume; nothing is timed")
	flag.StringVar(&s.only, "only", "", "with -writes: CDI or Berth alone")
	out := flag.String("out", filepath.Join("bench", "control"), "the folder for what was measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	measure := runBoth
	switch {
	case *peers:
		measure = runPeers
	case *writes:
		measure = runWrites
	}
	err := measure(ctx, s, *out)
	stop()
	if err != nil {
		log.Fatalf("control: %v", err)
	}
}

// runBoth measures without others and beside them, and writes the page.
func runBoth(ctx context.Context, s scene, out string) error {
	alone := s
	alone.pods, alone.claims = 0, 0
	runs, err := runAll(ctx, alone, s)
	if err != nil {
		return err
	}
	return writePage(filepath.Join(out, "results.md"), besideOthers(runs))
}

// runPeers measures CDI's controller and ours in the same way, and writes the page.
func runPeers(ctx context.Context, s scene, out string) error {
	var scenes []scene
	for _, one := range []scene{{csi: true, volumes: s.volumes / 4}, {csi: true, volumes: s.volumes}, {volumes: s.volumes / 4}} {
		for _, p := range []program{theirs, ours} {
			scenes = append(scenes, scene{program: p, volumes: one.volumes, csi: one.csi, brief: true})
		}
	}
	runs, err := runAll(ctx, scenes...)
	if err != nil {
		return err
	}
	return writePage(filepath.Join(out, "peers.md"), besidePeers(runs))
}

// runWrites counts what each controller writes, and writes the page.
func runWrites(ctx context.Context, s scene, out string) error {
	var scenes []scene
	for _, csi := range []bool{true, false} {
		for _, p := range []program{theirs, ours} {
			if s.only == "" || s.only == p.name {
				scenes = append(scenes, scene{program: p, volumes: s.volumes, brief: true, csi: csi, audited: true})
			}
		}
	}
	if len(scenes) == 0 {
		return fmt.Errorf("no controller is called %s", s.only)
	}
	runs, err := runAll(ctx, scenes...)
	if err != nil {
		return err
	}
	return writePage(filepath.Join(out, "writes.md"), writesPage(runs))
}

func runAll(ctx context.Context, scenes ...scene) ([]measured, error) {
	var runs []measured
	for _, one := range scenes {
		m, err := run(ctx, one)
		if err != nil {
			return nil, fmt.Errorf("%s with %d volumes: %w", one.program.name, one.volumes, err)
		}
		runs = append(runs, m)
	}
	return runs, nil
}

// run measures one scene in a cluster of its own.
func run(ctx context.Context, s scene) (measured, error) {
	m := measured{scene: s}
	dir, err := os.MkdirTemp("", "berth-control-")
	if err != nil {
		return m, fmt.Errorf("make a work directory: %w", err)
	}
	defer os.RemoveAll(dir)
	c := &simulated.Cluster{Dir: dir, Root: ".", Audited: s.audited}
	defer c.Stop()
	if err := c.Start(ctx); err != nil {
		return m, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return m, fmt.Errorf("register API types: %w", err)
		}
	}
	kube, err := client.New(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		return m, fmt.Errorf("connect: %w", err)
	}
	if err := prepare(ctx, kube, s); err != nil {
		return m, err
	}
	if err := c.StartNodes(ctx); err != nil {
		return m, err
	}
	if s.csi {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		if err := provision(ctx, c); err != nil {
			return m, err
		}
	}
	b := &bench{kube: kube, cluster: c, path: filepath.Join(dir, "controller"), scene: s}
	if err := c.Build(ctx, b.path, s.program.module, s.program.main); err != nil {
		return m, err
	}
	if m.rows, err = b.measure(ctx); err != nil || !s.audited {
		return m, err
	}
	m.writes, err = countWrites(c.AuditLog(), b.started)
	return m, err
}

type bench struct {
	kube    client.Client
	cluster *simulated.Cluster
	path    string // of the controller's program
	ctrl    *process
	started time.Time // when the controller had nothing more to do for its own start
	scene
}

// row is one step that was measured.
type row struct {
	step    string
	count   int // of volumes it was about; 0: none in particular
	seconds float64
	writes  int
	cpu     float64 // seconds
	rss     int64   // bytes, at the end
}

// The steps that are about volumes.
const (
	held       = "created, all held"
	complete   = "bound, all complete"
	clonesMade = "clones created, bound, complete"
)

func (b *bench) measure(ctx context.Context) ([]row, error) {
	steps := []struct {
		name  string
		count int
		do    func(context.Context) error
	}{
		{"the controller starts", 0, func(ctx context.Context) (err error) {
			if b.ctrl, err = startController(ctx, b.cluster, b.program, b.path); err != nil {
				return err
			}
			err = b.probe(ctx)
			b.started = time.Now()
			return err
		}},
		{held, b.volumes, b.create},
		{complete, b.volumes, b.consume},
		{clonesMade, b.clones, b.clone},
		{"idle", 0, func(ctx context.Context) error { return pause(ctx, idleFor) }},
	}
	var rows []row
	var before usage
	for _, step := range steps {
		if step.name == clonesMade && b.clones == 0 {
			continue
		}
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		after, err := b.ctrl.usage(ctx)
		if err != nil {
			return nil, err
		}
		r := row{step: step.name, count: step.count, seconds: time.Since(start).Seconds(), writes: after.writes - before.writes,
			cpu: after.cpu - before.cpu, rss: after.rss}
		log.Printf("%s, %d pods and %d claims of others: %s", b.program.name, b.pods, b.claims, r)
		rows, before = append(rows, r), after
	}
	return rows, nil
}

func (b *bench) create(ctx context.Context) error {
	for i := range b.volumes {
		source := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
		if err := b.kube.Create(ctx, volume(diskName(i), source)); err != nil {
			return fmt.Errorf("create volume %d: %w", i, err)
		}
	}
	return b.until(ctx, b.volumes, waiting...)
}

func volume(name string, source *cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: cdiv1.DataVolumeSpec{Source: source, PVC: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(className),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}
}

// probe makes a volume and deletes it when the controller has seen it: it sees nothing before it knows all pods and claims.
func (b *bench) probe(ctx context.Context) error {
	v := volume("probe", &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})
	if err := b.kube.Create(ctx, v); err != nil {
		return fmt.Errorf("create a first volume: %w", err)
	}
	if err := b.until(ctx, 1, waiting...); err != nil {
		return err
	}
	if err := b.kube.Delete(ctx, v); err != nil {
		return fmt.Errorf("delete the first volume: %w", err)
	}
	return b.until(ctx, 0, waiting...)
}

// clone clones the first volume several times, after the last pod that uses it has ended.
func (b *bench) clone(ctx context.Context) error {
	golden := diskName(0)
	if err := b.kube.Delete(ctx, consumer(golden)); err != nil {
		return fmt.Errorf("free the source of clones: %w", err)
	}
	home, err := b.home(ctx, golden)
	if err != nil {
		return err
	}
	if err := room(ctx, b.kube, home, b.clones); err != nil {
		return err
	}
	for i := range b.clones {
		name := fmt.Sprintf("clone-%d", i)
		source := &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: golden}}
		if err := b.kube.Create(ctx, volume(name, source)); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		user := consumer(name)
		user.Spec.NodeSelector = map[string]string{corev1.LabelHostname: home}
		if err := b.kube.Create(ctx, user); err != nil {
			return fmt.Errorf("create the consumer of %s: %w", name, err)
		}
	}
	return b.until(ctx, b.volumes+b.clones, cdiv1.Succeeded)
}

// home returns the node that a claim's volume is on.
func (b *bench) home(ctx context.Context, claim string) (string, error) {
	var c corev1.PersistentVolumeClaim
	if err := b.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim}, &c); err != nil {
		return "", fmt.Errorf("read claim %s: %w", claim, err)
	}
	var v corev1.PersistentVolume
	if err := b.kube.Get(ctx, client.ObjectKey{Name: c.Spec.VolumeName}, &v); err != nil {
		return "", fmt.Errorf("read the volume of %s: %w", claim, err)
	}
	return v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0], nil
}

// consume gives every claim its first consumer.
func (b *bench) consume(ctx context.Context) error {
	for i := range b.volumes {
		p := consumer(diskName(i))
		if b.brief {
			p.Labels = map[string]string{"ends": "at-once"}
		}
		if err := b.kube.Create(ctx, p); err != nil {
			return fmt.Errorf("create consumer %d: %w", i, err)
		}
	}
	return b.until(ctx, b.volumes, cdiv1.Succeeded)
}

func diskName(i int) string { return fmt.Sprintf("disk-%d", i) }

// waiting are the phases of a volume whose claim waits for its first consumer: CDI has a word of its own where a populator fills it.
var waiting = []cdiv1.DataVolumePhase{cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation}

func (b *bench) until(ctx context.Context, want int, phases ...cdiv1.DataVolumePhase) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var all cdiv1.DataVolumeList
		if err := b.kube.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		there := 0
		for i := range all.Items {
			if slices.Contains(phases, all.Items[i].Status.Phase) {
				there++
			}
		}
		return there == want, nil
	})
	if err != nil {
		return fmt.Errorf("wait until all are %s: %w", phases[0], err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
