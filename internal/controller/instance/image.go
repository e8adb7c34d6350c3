package instance

import (
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// GoAhead returns the annotations that tell a launcher to start its guest.
func GoAhead(s *observed.Instance) map[string]string {
	said := map[string]string{render.AnnGo: "yes"}
	if s.Agentless {
		said[render.AnnAgent] = launcherapi.NoAgent
	}
	return said
}
