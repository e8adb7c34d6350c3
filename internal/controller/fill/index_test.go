package fill

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/filltest"
)

// counted counts the pods and claims that a reader hands out in lists: each is copied, and then looked at.
type counted struct {
	client.Reader
	objects int
}

func (c *counted) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Reader.List(ctx, list, options...)
	switch l := list.(type) {
	case *corev1.PodList:
		c.objects += len(l.Items)
	case *corev1.PersistentVolumeClaimList:
		c.objects += len(l.Items)
	}
	return err
}

// TestOthersAreNotLookedAt: what a look at a clone costs does not grow with the pods and claims that others have, in its own
// namespace or in any other.
func TestOthersAreNotLookedAt(t *testing.T) {
	look := func(others int) int {
		golden := onNode("golden", "node1")
		objects := append(golden, node("node1"), node("node2"), consumer(nil, "disk"))
		for i := range others {
			for _, space := range []string{filltest.Team, "others"} {
				p := consumer(nil, fmt.Sprintf("other-%d", i))
				p.Namespace, p.Name, p.Spec.NodeName = space, fmt.Sprintf("other-%d", i), "node2"
				objects = append(objects, p, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: p.Name}})
			}
		}
		w := filltest.New(t, filltest.Scene{Objects: objects})
		reader := &counted{Reader: w.API}
		e := New(Parts{Reader: reader, Live: w.API, Writer: w.Writer, Clock: w.Clock})
		source := &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}
		s := &Seen{order: Order{Namespace: filltest.Team, Name: "disk"}, source: source, class: filltest.Class(filltest.Waits)}
		if _, err := e.elsewhere(t.Context(), s); err != nil || s.origin.beside != "node1" {
			t.Fatalf("the clone is placed beside %q: %v", s.origin.beside, err)
		}
		for _, obj := range golden {
			if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
				s.origin.claim = c
			}
		}
		if user, err := e.userOf(t.Context(), s); err != nil || user != "" {
			t.Fatalf("the source is used by %q: %v", user, err)
		}
		if _, err := e.aidSpaces(t.Context(), Order{Namespace: filltest.Team, Name: "disk", UID: "1", For: s.origin.claim, Spec: cdiv1.DataVolumeSpec{Source: source}}); err != nil {
			t.Fatal(err)
		}
		return reader.objects
	}
	if alone, crowded := look(0), look(50); crowded != alone {
		t.Errorf("a look at a clone reads %d pods and claims when there are no others, and %d among 200 others", alone, crowded)
	}
}
