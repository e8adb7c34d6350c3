package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// nodeCount nodes share the volumes evenly.
const nodeCount = 10

//go:embed stages.yaml
var stages string

// startNodes builds kwok, which is a module of its own so that the product does not depend on it, and starts it together
// with the real scheduler and the real volume binder.
func (c *cluster) startNodes(ctx context.Context) error {
	kwok := filepath.Join(c.dir, "kwok")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("hack", "kwok"), "-trimpath", "-ldflags", "-s -w", "-o", kwok,
		"sigs.k8s.io/kwok/cmd/kwok")
	build.Stderr, build.Env = os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build kwok: %w", err)
	}
	report, err := json.Marshal(task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed})
	if err != nil {
		return fmt.Errorf("write the workers' report: %w", err)
	}
	lives := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(lives, []byte(strings.Replace(stages, "REPORT", string(report), 1)), 0o600); err != nil {
		return fmt.Errorf("write stages: %w", err)
	}
	schedule := filepath.Join(c.dir, "scheduler.yaml")
	if err := os.WriteFile(schedule, fmt.Appendf(nil, schedulerConfig, c.kubeconfig), 0o600); err != nil {
		return fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	box := filepath.Join("bin", "kubebox")
	if err := c.run(box, "kube-scheduler", "--config="+schedule, "--bind-address=127.0.0.1", "--secure-port="+ports[0]); err != nil {
		return err
	}
	if err := c.run(box, "kube-controller-manager", "--kubeconfig="+c.kubeconfig, "--controllers=persistentvolume-binder-controller",
		"--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000", "--bind-address=127.0.0.1",
		"--secure-port="+ports[1]); err != nil {
		return err
	}
	return c.runLogged(filepath.Join(c.dir, "kwok.log"), kwok, "--kubeconfig="+c.kubeconfig, "--config="+lives,
		"--manage-all-nodes=true")
}

// The scheduler's share of the API server, like everybody's here, is not what limits the bench.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
`

func nodeName(i int) string { return fmt.Sprintf("node-%d", i%nodeCount) }

// prepare makes what volumes refer to: a class that waits, nodes, and on them a volume for each claim.
func prepare(ctx context.Context, kube client.Client, n int) error {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &waits,
		},
	}
	for i := range nodeCount {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)},
		}})
	}
	for i := range n {
		objects = append(objects, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("volume-%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: className, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					Local: &corev1.LocalVolumeSource{Path: fmt.Sprintf("/volumes/%d", i)},
				},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName(i)}},
					},
				}}}},
			},
		})
	}
	for _, obj := range objects {
		if err := kube.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

// consumer is the first pod that needs a claim.
func consumer(claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "consumer-of-" + claim},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "consumer", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}
