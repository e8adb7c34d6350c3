package clone

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/token"
)

// sealed is a verifier with a real key, and users who may clone what it lists.
type sealed struct {
	key token.Key
	may map[string]bool
}

func (v sealed) Verify(_ context.Context, proof string, wanted token.Grant) error {
	user, err := v.key.Verify(proof, wanted)
	if err == nil && !v.may[user.Name+" "+wanted.Source.Name] {
		return fmt.Errorf("%w: user %s", token.ErrRevoked, user.Name)
	}
	return err
}

// TestWhatAReferenceLeadsTo: a proof is valid only for the source it was given for. A DataSource that a user in the volume's
// namespace can edit does not extend it; a DataSource in the source's namespace may become newer, as far as the volume's author
// may clone its source.
func TestWhatAReferenceLeadsTo(t *testing.T) {
	key, err := token.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		at, now string // where the DataSource is, and which claim of golden it leads to by now
		may     string // what Alice may clone by now
		want    string // why not; empty: she gets it
	}{
		"the team's, as it was":         {at: filltest.Team, now: "fedora", may: "alice fedora"},
		"the team's, led elsewhere":     {at: filltest.Team, now: "secret", may: "alice secret", want: "for another source"},
		"golden's, as it was":           {at: "golden", now: "fedora", may: "alice fedora"},
		"golden's, newer":               {at: "golden", now: "fedora-43", may: "alice fedora-43"},
		"golden's, newer than she may":  {at: "golden", now: "secret", may: "alice fedora", want: "may not clone it any more: user alice"},
		"her right was taken away":      {at: "golden", now: "fedora", may: "", want: "may not clone it any more: user alice"},
		"the team's, and right is gone": {at: filltest.Team, now: "fedora", may: "", want: "may not clone it any more: user alice"},
	} {
		t.Run(name, func(t *testing.T) {
			granted := token.Grant{By: token.User{Name: "alice"}, Target: token.Object{Namespace: filltest.Team, Name: "disk"},
				Source: token.Object{Kind: "PersistentVolumeClaim", Namespace: "golden", Name: "fedora"}}
			if row.at == "golden" {
				granted.Via = &token.Object{Namespace: "golden", Name: "os"}
			}
			proof, err := key.Sign(granted)
			if err != nil {
				t.Fatal(err)
			}
			spec := filltest.Spec()
			v := &cdiv1.DataVolume{
				ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid", Annotations: map[string]string{token.Annotation: proof}},
				Spec:       cdiv1.DataVolumeSpec{PVC: &spec, SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &row.at, Name: "os"}},
			}
			ds := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: row.at, Name: "os"}, Spec: cdiv1.DataSourceSpec{
				Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: row.now}}}}
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, ds, filltest.Bound("golden", row.now)}})
			c := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth",
				Tokens: sealed{key: key, may: map[string]bool{row.may: true}}})
			s, err := c.Find(t.Context(), Order{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Annotations: v.Annotations, Spec: &v.Spec}, Target{})
			w.Must(err)
			if forbidden := s.Origin() == volume.Forbidden; forbidden != (row.want != "") || !strings.Contains(s.Why(), row.want) {
				t.Errorf("fact %v, %q", s.Origin(), s.Why())
			}
		})
	}
}
