package instance

import (
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// GoAhead is what a launcher is told that is to go.
func GoAhead(s *observed.Instance) map[string]string {
	said := map[string]string{render.AnnGo: "yes"}
	if s.Agentless {
		said[render.AnnAgent] = launcherapi.NoAgent
	}
	return said
}
