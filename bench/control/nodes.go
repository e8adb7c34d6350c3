package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeCount nodes share the volumes evenly.
const nodeCount = 10

func nodeName(i int) string { return fmt.Sprintf("node-%d", i%nodeCount) }

// prepare makes what volumes refer to: a class that waits, nodes, and on them a volume for each claim; and what others have.
func prepare(ctx context.Context, kube client.Client, s scene) error {
	objects := []client.Object{namespaceOf("berth"), namespaceOf(namespace)}
	for _, needed := range s.program.objects {
		objects = append(objects, needed.DeepCopyObject().(client.Object)) // each cluster gives it a version
	}
	for i := range nodeCount {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)},
		}})
	}
	if s.csi {
		objects = append(objects, csiObjects()...)
	} else {
		objects = append(objects, class("kubernetes.io/no-provisioner"))
		for i := range s.volumes {
			objects = append(objects, local(fmt.Sprintf("volume-%d", i), nodeName(i)))
		}
	}
	if err := createAll(ctx, kube, objects); err != nil {
		return err
	}
	beside := others(s)
	if err := createAll(ctx, kube, beside); err != nil {
		return err
	}
	// They run before there are nodes, whose time is for the pods that are measured.
	return forAll(beside, func(obj client.Object) error {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return nil
		}
		p.Status.Phase = corev1.PodRunning
		if err := kube.Status().Update(ctx, p); err != nil {
			return fmt.Errorf("have %s run: %w", p.Name, err)
		}
		return nil
	})
}

// class waits for the first consumer of a claim.
func class(provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// room makes volumes on a node.
func room(ctx context.Context, kube client.Client, node string, n int) error {
	var objects []client.Object
	for i := range n {
		objects = append(objects, local(fmt.Sprintf("room-%d", i), node))
	}
	return createAll(ctx, kube, objects)
}

// local returns a volume of a node.
func local(name, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: className, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/volumes/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				},
			}}}},
		},
	}
}

// createAll creates the objects, many at once; namespaces and what is in them in their order.
func createAll(ctx context.Context, kube client.Client, objects []client.Object) error {
	var first, rest []client.Object
	for _, obj := range objects {
		if _, space := obj.(*corev1.Namespace); space {
			first = append(first, obj)
		} else {
			rest = append(rest, obj)
		}
	}
	for _, part := range [][]client.Object{first, rest} {
		err := forAll(part, func(obj client.Object) error {
			if err := kube.Create(ctx, obj); err != nil {
				return fmt.Errorf("create %s: %w", obj.GetName(), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forAll calls do for each of the objects, for many at the same time.
func forAll(objects []client.Object, do func(client.Object) error) error {
	var all errgroup.Group
	all.SetLimit(32)
	for _, obj := range objects {
		all.Go(func() error { return do(obj) })
	}
	return all.Wait()
}

// perSpace is how many pods and claims of others are in a namespace.
const perSpace = 100

// others are pods and claims that have nothing to do with any volume. A pod is as large as those of an ordinary application, and
// has a claim that does not exist.
func others(s scene) []client.Object {
	var objects []client.Object
	space := func(i int) string { return fmt.Sprintf("others-%d", i/perSpace) }
	for i := range (max(s.pods, s.claims) + perSpace - 1) / perSpace {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space(i * perSpace)}})
	}
	for i := range s.claims {
		objects = append(objects, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: space(i), Name: fmt.Sprintf("claim-%d", i), Labels: map[string]string{"app": "other"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new("of-others"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		})
	}
	for i := range s.pods {
		p := consumer(fmt.Sprintf("claim-%d", i))
		p.Namespace, p.Spec.NodeName = space(i), nodeName(i)
		p.Labels = map[string]string{"app": "other", "pod-template-hash": "5d4f8c7b9", "version": "v1"}
		main := &p.Spec.Containers[0]
		for n := range 20 {
			main.Env = append(main.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: "a value as settings have it, neither long nor short"})
		}
		main.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
		objects = append(objects, p)
	}
	return objects
}

// consumer returns the first pod that needs a claim.
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
