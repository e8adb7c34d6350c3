//go:build e2e

package framework

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	maxObjects = 40
	logLines   = int64(60)
)

// dump prints what explains a failure: the namespace's objects, its events in order, the ends of its pods' logs, and the nodes.
func (e *Env) dump(ctx context.Context) {
	var out strings.Builder
	fmt.Fprintf(&out, "\n===== namespace %s when the test failed =====\n", e.Namespace)
	e.dumpObjects(ctx, &out)
	e.dumpEvents(ctx, &out)
	e.dumpLogs(ctx, &out)
	e.dumpNodes(ctx, &out)
	e.T.Log(out.String())
}

// dull are kinds whose objects explain nothing, or must not be printed.
var dull = map[string]bool{
	"events": true, "secrets": true, "serviceaccounts": true, "endpoints": true, "endpointslices": true, "controllerrevisions": true, "leases": true,
}

func (e *Env) dumpObjects(ctx context.Context, out io.Writer) {
	// Some groups may not answer, an aggregated API whose server is down for one; the rest still does.
	lists, _ := e.Client.Discovery().ServerPreferredNamespacedResources()
	shown := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if dull[r.Name] || !strings.Contains(r.Verbs.String(), "list") {
				continue
			}
			objects, err := e.Dynamic.Resource(gv.WithResource(r.Name)).Namespace(e.Namespace).List(ctx, metav1.ListOptions{Limit: maxObjects})
			if err != nil {
				continue
			}
			for _, o := range objects.Items {
				if o.GetName() == "kube-root-ca.crt" || shown >= maxObjects {
					continue
				}
				shown++
				o.SetManagedFields(nil)
				text, err := yaml.Marshal(o.Object)
				if err == nil {
					fmt.Fprintf(out, "--- %s %s\n%s", o.GetKind(), o.GetName(), text)
				}
			}
		}
	}
}

func (e *Env) dumpEvents(ctx context.Context, out io.Writer) {
	list, err := e.Client.CoreV1().Events(e.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(out, "--- events: %v\n", err)
		return
	}
	sort.Slice(list.Items, func(i, j int) bool { return eventTime(&list.Items[i]).Before(eventTime(&list.Items[j])) })
	fmt.Fprintln(out, "--- events")
	for _, ev := range list.Items {
		fmt.Fprintf(out, "%s %s %s/%s %s: %s\n", eventTime(&ev).Format("15:04:05"), ev.Type, ev.InvolvedObject.Kind, ev.InvolvedObject.Name, ev.Reason, ev.Message)
	}
}

func eventTime(ev *corev1.Event) *metav1.Time {
	if !ev.LastTimestamp.IsZero() {
		return &ev.LastTimestamp
	}
	return &ev.CreationTimestamp
}

func (e *Env) dumpLogs(ctx context.Context, out io.Writer) {
	pods, err := e.Client.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(out, "--- logs: %v\n", err)
		return
	}
	lines := logLines
	for _, pod := range pods.Items {
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			data, err := e.Client.CoreV1().Pods(e.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: c.Name, TailLines: &lines}).DoRaw(ctx)
			fmt.Fprintf(out, "--- log of pod %s, container %s (on %s)\n%s%s\n", pod.Name, c.Name, pod.Spec.NodeName, data, errorText(err))
		}
	}
}

func (e *Env) dumpNodes(ctx context.Context, out io.Writer) {
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(out, "--- nodes: %v\n", err)
		return
	}
	for _, n := range nodes.Items {
		fmt.Fprintf(out, "--- node %s: ready %t, unschedulable %t, taints %v\n", n.Name, NodeReady(&n), n.Spec.Unschedulable, n.Spec.Taints)
	}
}
