package restore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// patchable are the parts of a machine that a restore may change. The name is given by the restore's target.
var patchable = []string{"/spec/", "/metadata/labels/", "/metadata/annotations/"}

// most is how large a patched machine may be: the API server takes no larger one, and copies of copies grow without end.
const most = 1 << 20

// patched returns a machine after the operations of a JSON patch. An error names the operation.
func patched(vm *kubevirt.VirtualMachine, operations []string) (*kubevirt.VirtualMachine, error) {
	if len(operations) == 0 {
		return vm, nil
	}
	text, err := json.Marshal(vm)
	if err != nil {
		return nil, fmt.Errorf("write the machine to patch: %w", err)
	}
	for _, operation := range operations {
		patch, err := jsonpatch.DecodePatch([]byte("[" + operation + "]"))
		if err != nil || len(patch) != 1 {
			return nil, fmt.Errorf(`patch %s is not one operation like {"op": "replace", "path": "/spec/runStrategy", "value": "Always"}`, operation)
		}
		for _, at := range places(patch[0]) {
			if !slices.ContainsFunc(patchable, func(root string) bool { return strings.HasPrefix(at, root) }) {
				return nil, fmt.Errorf("patch %s is not on anything under %s", operation, strings.Join(patchable, ", "))
			}
		}
		if text, err = patch.Apply(text); err != nil {
			return nil, fmt.Errorf("patch %s: %w", operation, err)
		}
		if len(text) > most {
			return nil, fmt.Errorf("patch %s makes the machine larger than %d bytes", operation, most)
		}
	}
	out := &kubevirt.VirtualMachine{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return nil, fmt.Errorf("the patches leave no VirtualMachine: %w", err)
	}
	return out, nil
}

// places returns what an operation reads and writes. One without a path is on the whole, which is nowhere allowed.
func places(o jsonpatch.Operation) []string {
	path, err := o.Path()
	if err != nil {
		path = ""
	}
	at := []string{path}
	if from, err := o.From(); err == nil {
		at = append(at, from)
	}
	return at
}
