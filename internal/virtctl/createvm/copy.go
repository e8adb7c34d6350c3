package createvm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// copyModes are the modes, with the short words for them.
var copyModes = map[string]kubevirt.CopyMode{
	"copy-on-write": kubevirt.CopyOnWrite, "cow": kubevirt.CopyOnWrite,
	"copy-on-read": kubevirt.CopyOnRead, "cor": kubevirt.CopyOnRead,
	"clone": kubevirt.CopyClone,
}

// copied returns the copy that the machine is to have of a volume; nil if it has none.
func (p params) copied() (*kubevirt.DiskCopy, error) {
	text, usage := p.take("copy", ""), p.take("usage-type", "")
	capacity, err := p.amount("copy-capacity")
	if err != nil {
		return nil, err
	}
	size, err := p.amount("copy-size")
	if err != nil {
		return nil, err
	}
	mode, known := copyModes[text]
	switch {
	case text == "" && (usage != "" || capacity != nil || size != nil):
		return nil, fmt.Errorf("usage-type, copy-capacity and copy-size are for a copy: say which with copy:%s", copyWords())
	case text == "":
		return nil, nil
	case !known:
		return nil, fmt.Errorf("copy %q is none of %s", text, copyWords())
	}
	return &kubevirt.DiskCopy{Mode: mode, UsageType: usage, Capacity: capacity, Size: size}, nil
}

func copyWords() string { return strings.Join(slices.Sorted(maps.Keys(copyModes)), "|") }

// amount returns a size that may be left out.
func (p params) amount(key string) (*resource.Quantity, error) {
	text := p.take(key, "")
	if text == "" {
		return nil, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return nil, fmt.Errorf("%s %q is not a size like 10Gi", key, text)
	}
	return &q, Plausible(q)
}
