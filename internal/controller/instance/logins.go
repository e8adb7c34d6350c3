package instance

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/render"
)

// serversOwner owns the annotation with the servers of a launcher.
const serversOwner client.FieldOwner = "berth-servers"

// noteServers records where the launcher has logged in.
func (r *Reconciler) noteServers(ctx context.Context, s *observed.Instance) error {
	text, err := json.Marshal(s.Logins)
	if err != nil {
		return fmt.Errorf("write the servers: %w", err)
	}
	return r.Cluster.MarkAs(ctx, serversOwner, s.Launcher, cluster.Marks{Annotations: map[string]string{render.AnnServers: string(text)}})
}
