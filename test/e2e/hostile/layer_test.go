//go:build e2e

package hostile

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// craftedLayers: the tenant runs machines from an image whose layer is small and has a node busy for most of an hour, if it is converted to its end: each
// of its entries leads through all the links that a path may have, and each link through as many names as it has room for. The victim runs a machine
// from an image on the same node meanwhile, and its layers are the node's.
func craftedLayers(h *hostile) {
	const links, entries = 38, 200_000
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	long := strings.Repeat("./", 2000)
	for i := range links {
		h.victim.NoError(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("l%d", i), Linkname: fmt.Sprintf("%sl%d", long, i+1), Typeflag: tar.TypeSymlink, Mode: 0o777}))
	}
	h.victim.NoError(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("l%d", links), Typeflag: tar.TypeDir, Mode: 0o755}))
	for range entries {
		h.victim.NoError(w.WriteHeader(&tar.Header{Name: "l0/.wh..wh..opq", Typeflag: tar.TypeReg, Mode: 0o644}))
	}
	h.victim.NoError(w.Close())
	crafted, sent := h.own.PushLayers(v1.Config{Entrypoint: []string{"/bin/sample"}}, "amd64", packed.Bytes())
	good, _ := h.victim.PushImage(v1.Config{Entrypoint: []string{"/bin/sample"}}, "amd64",
		[]fixture.ImageFile{{Name: "bin/sample", Text: h.victim.BuildSampleProgram(), Mode: 0o755, Owner: 0}, {Name: "etc/name", Text: h.victim.Namespace, Mode: 0o644, Owner: 0}})
	node := map[string]string{corev1.LabelHostname: h.victim.ReadyNodes()[0]}
	sent.Store(0) // what was said to its sender
	mine, theirs := h.yard(h.own), h.yard(h.victim)
	for n := range 4 {
		vm := mine.ImageMachine(fmt.Sprintf("crafted-%d", n), crafted)
		vm.Spec.RunStrategy, vm.Spec.Template.Spec.NodeSelector = new(kubevirt.RunAlways), node
		h.make(vm)
	}
	h.own.Wait("the crafted layer to be read", fixture.Patience, func(context.Context) (bool, string) {
		return sent.Load() > 64<<10, fmt.Sprintf("%d bytes were sent", sent.Load())
	})
	vm := theirs.ImageMachine("from-image", good, "serve=:80")
	vm.Spec.Template.Spec.NodeSelector = node
	theirs.CreateMachine(vm)
	theirs.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	theirs.GuestSays(vm, `"msg":"the layers are the node's","layers":1`)
}
