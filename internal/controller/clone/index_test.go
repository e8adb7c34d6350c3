package clone

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

// counted counts the pods and claims that a reader hands out in lists: each is copied, and then looked at. A list of them that is not
// made by an index is refused: the cache would look through all there are, however few it hands out.
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
	default:
		return err
	}
	if by := (&client.ListOptions{}).ApplyOptions(options); by.FieldSelector == nil {
		return fmt.Errorf("%T is listed by no index", list)
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
		c, s := looking(t, reader, w)
		if err := c.Observe(t.Context(), s, Target{Class: filltest.Class(filltest.Waits)}); err != nil || s.where.Beside != "node1" || s.user != "" {
			t.Fatalf("the clone is placed beside %q, its source is used by %q: %v", s.where.Beside, s.user, err)
		}
		order := s.order
		order.For = s.found.Claim
		if _, err := c.aidSpaces(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		if err := c.Sweep(t.Context(), types.NamespacedName{Namespace: "others", Name: "other-1"}); err != nil {
			t.Fatal(err)
		}
		return reader.objects
	}
	if alone, crowded := look(0), look(50); crowded != alone {
		t.Errorf("a look at a clone reads %d pods and claims when there are no others, and %d among 200 others", alone, crowded)
	}
}
