// Package containervolume is the contract with a container that makes a volume: the request, how it is sent, and the possible
// answers. docs/reference/container-volumes.yaml is the same contract for people who write such a container.
//
// It does not know pods, records or whether a request is due. An answer is untrusted, like a user's input: the admission of
// machines decides whether the machine may have the volume.
package containervolume

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
)

// longest is the size of the largest answer: a hundred times what any source needs.
const longest = 64 << 10

// ErrRefused is in the error of every answer that cannot be used, however often it is given.
var ErrRefused = errors.New("the answer cannot be used")

// answer is the document as the proposal writes it: the LUN may be beside the iSCSI target or in it.
type answer struct {
	kubevirt.MadeSource `json:",inline"`
	LUN                 *int32 `json:"lun,omitempty"`
}

// kinds are the sources that an answer may have.
var kinds = append(netdisk.Names(), "pvc")

// Read turns an answer, YAML or JSON, into the source it names. It is strict: a field that is not known might be what keeps the
// volume apart from another.
func Read(text []byte) (*kubevirt.MadeSource, error) {
	if len(text) > longest {
		return nil, fmt.Errorf("%w: it is larger than %d KiB", ErrRefused, longest>>10)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%w: it is neither YAML nor JSON: %s", ErrRefused, oneLine(err))
	}
	if err := named(fields); err != nil {
		return nil, err
	}
	var a answer
	if err := yaml.UnmarshalStrict(text, &a); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrRefused, oneLine(err))
	}
	return a.withLUN(fields)
}

// named returns an error unless exactly one source is set, one that a container may give.
func named(fields map[string]any) error {
	var found []string
	for _, kind := range kinds {
		if fields[kind] != nil {
			found = append(found, kind)
		}
	}
	for _, never := range []string{"container", "hostDisk", "hostPath"} {
		if _, there := fields[never]; there {
			return fmt.Errorf("%w: it names %s, which a container may not give", ErrRefused, never)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%w: it must name one of %s, and names %d of them", ErrRefused, strings.Join(kinds, ", "), len(found))
	}
	return nil
}

// withLUN puts the LUN where it belongs.
func (a *answer) withLUN(fields map[string]any) (*kubevirt.MadeSource, error) {
	if a.ISCSI == nil {
		if a.LUN != nil {
			return nil, fmt.Errorf("%w: it has a lun and no iscsi", ErrRefused)
		}
		return &a.MadeSource, nil
	}
	inside, _ := fields["iscsi"].(map[string]any)
	_, there := inside["lun"]
	switch {
	case a.LUN == nil && !there:
		return nil, fmt.Errorf("%w: it names an iSCSI target and no lun", ErrRefused)
	case a.LUN != nil && there && *a.LUN != a.ISCSI.LUN:
		return nil, fmt.Errorf("%w: it names LUN %d beside iscsi and LUN %d in it", ErrRefused, *a.LUN, a.ISCSI.LUN)
	case a.LUN != nil:
		a.ISCSI.LUN = *a.LUN
	}
	return &a.MadeSource, nil
}

// Reach asks the rules about every server that the source names by its address. Servers with a name are asked about when the
// machine starts, as those of users are, because only then it is known what the name stands for.
func Reach(s *kubevirt.MadeSource, rules reach.Rules) error {
	at, err := netdisk.Open(s.NetworkSource, netdisk.Client{})
	switch {
	case errors.Is(err, netdisk.ErrNone):
		return nil // a claim is at no server
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	for _, t := range reach.Targets(at) {
		address, err := netip.ParseAddr(t.Host)
		if err != nil {
			if t.Host == "localhost" || strings.HasSuffix(t.Host, ".localhost") {
				return fmt.Errorf("%w: %s would be the machine's own pod", ErrRefused, t)
			}
			continue
		}
		if err := rules.Check(t, address, nil); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return nil
}

// oneLine returns a parser's error as one line, fit for a message.
func oneLine(err error) string {
	return words([]byte(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: ")))
}
