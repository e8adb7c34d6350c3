// Command control measures the volume controller alone: many DataVolumes held, then all bound, by a real API server,
// scheduler and volume binder, on nodes that kwok simulates and whose workers report Done at once.
//
//	go run ./bench/control [-n 1000]
//
// It needs bin/kubebox (the control plane), builds kwok out of hack/kwok, and prints a table: time, write requests per volume, CPU and memory of
// the controller, and the writes it makes when there is nothing to do. What a run came to is in results.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	namespace = "bench"
	className = "waits"
	idleFor   = 60 * time.Second
	// patience is for the slowest machine that is still worth measuring.
	patience = 30 * time.Minute
)

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 1000, "how many volumes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *n, os.Stdout)
	stop()
	if err != nil {
		log.Fatalf("control: %v", err)
	}
}

func run(ctx context.Context, n int, out io.Writer) error {
	dir, err := os.MkdirTemp("", "berth-control-")
	if err != nil {
		return fmt.Errorf("make a work directory: %w", err)
	}
	defer os.RemoveAll(dir)
	c := &cluster{dir: dir}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register API types: %w", err)
		}
	}
	kube, err := client.New(c.config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := prepare(ctx, kube, n); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	ctrl, err := c.controller(ctx, filepath.Join(dir, "controller.log"))
	if err != nil {
		return err
	}
	return measure(ctx, &bench{kube: kube, ctrl: ctrl, n: n, out: out})
}

type bench struct {
	kube client.Client
	ctrl *process
	n    int
	out  io.Writer
}

func measure(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "%d volumes\n\n| step | seconds | writes | writes per volume | controller CPU s | RSS MiB |\n|---|---|---|---|---|---|\n", b.n)
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"created, all held", b.create},
		{"bound, all complete", b.consume},
		{"idle", func(ctx context.Context) error { return pause(ctx, idleFor) }},
	}
	for _, step := range steps {
		before, err := b.ctrl.usage(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		after, err := b.ctrl.usage(ctx)
		if err != nil {
			return err
		}
		writes := after.writes - before.writes
		fmt.Fprintf(b.out, "| %s | %.1f | %d | %.2f | %.1f | %d |\n", step.name, time.Since(start).Seconds(), writes,
			float64(writes)/float64(b.n), after.cpu-before.cpu, after.rss>>20)
	}
	return nil
}

func (b *bench) create(ctx context.Context) error {
	for i := range b.n {
		v := &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: diskName(i)},
			Spec: cdiv1.DataVolumeSpec{
				Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}},
				PVC: &corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(className),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi"),
					}},
				},
			},
		}
		if err := b.kube.Create(ctx, v); err != nil {
			return fmt.Errorf("create volume %d: %w", i, err)
		}
	}
	return b.until(ctx, cdiv1.WaitForFirstConsumer)
}

// consume gives every claim its first consumer.
func (b *bench) consume(ctx context.Context) error {
	for i := range b.n {
		if err := b.kube.Create(ctx, consumer(diskName(i))); err != nil {
			return fmt.Errorf("create consumer %d: %w", i, err)
		}
	}
	return b.until(ctx, cdiv1.Succeeded)
}

func diskName(i int) string { return fmt.Sprintf("disk-%d", i) }

func (b *bench) until(ctx context.Context, phase cdiv1.DataVolumePhase) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var all cdiv1.DataVolumeList
		if err := b.kube.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		there := 0
		for i := range all.Items {
			if all.Items[i].Status.Phase == phase {
				there++
			}
		}
		return there == b.n, nil
	})
	if err != nil {
		return fmt.Errorf("wait until all are %s: %w", phase, err)
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
