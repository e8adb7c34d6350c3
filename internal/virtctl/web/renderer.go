package web

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// question names the view and the object that a page shows.
type question struct{ view, namespace, name string }

// update is the change of a page: parts, each with its HTML, and lists of parts, in order. A part that is no longer in a list is removed.
type update struct {
	Lists map[string][]string `json:"lists,omitempty"`
	Parts map[string]string   `json:"parts,omitempty"`
}

// renderer writes a page and remembers what it wrote, so that only what is different is written and sent again.
type renderer struct {
	written map[string]written
	lists   map[string][]string
}

type written struct {
	value any
	html  string
}

func newRenderer() *renderer {
	return &renderer{written: map[string]written{}, lists: map[string][]string{}}
}

// sheet is a page while it is laid out.
type sheet struct {
	lists map[string][]string
	parts []part
}

// part is a piece of the page: a template and what it writes.
type part struct {
	id, template string
	value        any
}

func (s *sheet) add(list, id, template string, value any) {
	s.lists[list] = append(s.lists[list], id)
	s.parts = append(s.parts, part{id, template, value})
}

// draw sends the changes since the last call, if there are any. The first time, when that is the whole page, it sends the first
// screen before the rest, so that the user sees it meanwhile.
func (p *renderer) draw(o *view.Objects, ask question, events []*corev1.Event, send func(*update) error) error {
	page := &sheet{lists: map[string][]string{}}
	lay(page, o, ask, events)
	pages := []*sheet{page}
	if len(p.written) == 0 && len(page.parts) > 2*beginning {
		pages = []*sheet{page.begin(), page}
	}
	for _, page := range pages {
		u, err := p.write(page)
		if err != nil || u == nil {
			return err
		}
		if err := send(u); err != nil {
			return err
		}
	}
	return nil
}

// beginning is how many parts fill a screen.
const beginning = 60

// begin returns the first part of a page.
func (s *sheet) begin() *sheet {
	out := &sheet{lists: map[string][]string{}, parts: s.parts[:beginning]}
	there := map[string]bool{}
	for _, p := range out.parts {
		there[p.id] = true
	}
	for list, ids := range s.lists {
		out.lists[list] = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !there[id] })
	}
	return out
}

// write returns the differences from what was written last; nil if there are none.
func (p *renderer) write(page *sheet) (*update, error) {
	out := &update{Lists: map[string][]string{}, Parts: map[string]string{}}
	now := make(map[string]written, len(page.parts))
	for _, part := range page.parts {
		was, there := p.written[part.id]
		if !there || !reflect.DeepEqual(was.value, part.value) {
			var b bytes.Buffer
			if err := templates.ExecuteTemplate(&b, part.template, part.value); err != nil {
				return nil, fmt.Errorf("write %s: %w", part.id, err)
			}
			if html := b.String(); html != was.html {
				out.Parts[part.id] = html
				was.html = html
			}
			was.value = part.value
		}
		now[part.id] = was
	}
	for list, ids := range page.lists {
		if !slices.Equal(ids, p.lists[list]) {
			out.Lists[list] = ids
		}
	}
	for list := range p.lists {
		if _, there := page.lists[list]; !there {
			out.Lists[list] = []string{}
		}
	}
	p.written, p.lists = now, page.lists
	if len(out.Lists) == 0 && len(out.Parts) == 0 {
		return nil, nil
	}
	return out, nil
}

// notice is a message above a page.
type notice struct{ Tone, Text string }

// lay lays a page out.
func lay(page *sheet, o *view.Objects, ask question, events []*corev1.Event) {
	page.lists["notices"] = nil
	if o.Lost != "" {
		page.add("notices", "notice/lost", "notice", notice{"bad", "The cluster cannot be reached, and what is here may be old. It is tried again. " + o.Lost})
	}
	switch ask.view {
	case "machine":
		layMachine(page, o.Page(ask.namespace, ask.name, events), ask)
	case "volumes":
		page.lists["rows"] = nil
		nodes := o.NodeNames()
		for _, d := range o.Disks() {
			page.add("rows", d.ID(), "volume", row{d, places(nodes, d)})
		}
		page.add("foot", "foot/empty", "empty", emptiness{len(page.lists["rows"]) == 0, "There are no disks here yet. Drop an image file on this page to make one."})
	case "images":
		page.lists["rows"] = nil
		for _, i := range o.Golden() {
			page.add("rows", i.ID(), "image", i)
		}
		page.add("foot", "foot/empty", "empty", emptiness{len(page.lists["rows"]) == 0, "There are no golden images: no DataSource and no DataImportCron."})
	case "classes":
		page.lists["rows"] = nil
		for _, c := range o.AllClasses() {
			page.add("rows", c.ID(), "class", c)
		}
		page.add("foot", "foot/empty", "empty", emptiness{len(page.lists["rows"]) == 0, "There are no storage classes, or you may not read them."})
	default:
		layOverview(page, o)
	}
}

type emptiness struct {
	Empty bool
	Text  string
}

// row is a volume, and where it may be put if it is held.
type row struct {
	view.Disk
	Places []place
}

// place is somewhere a held volume can be bound.
type place struct{ Value, Text string }

// places lists where a held volume can be placed: on any node, where one of its machines is or can be, or on one node.
func places(nodes []string, d view.Disk) []place {
	if !d.Held {
		return nil
	}
	out := []place{{"any", "any node"}}
	for _, m := range d.Machines {
		out = append(out, place{"machine/" + m, "where machine " + m + " runs or can run"})
	}
	for _, n := range nodes {
		out = append(out, place{"node/" + n, "node " + n})
	}
	return out
}

func layOverview(page *sheet, o *view.Objects) {
	all := o.Overview()
	page.lists["waits"], page.lists["columns"] = nil, nil
	for _, w := range all.Waits {
		page.add("waits", w.ID(), "wait", w)
	}
	page.add("waits-foot", "waits/more", "more", struct{ None, More int }{len(all.Waits), all.More})
	for _, c := range all.Columns {
		list := "column/" + c.Name
		page.lists[list] = nil
		machines, loose := c.Machines, c.Loose
		page.add("columns", list, "column", columnHead{c.Name, c.Note, string(c.Tone), list, len(machines), len(loose), c.Pools})
		for _, m := range machines {
			page.add(list, m.ID(), "machine", m)
		}
		for _, d := range loose {
			page.add(list, d.ID(), "loose", d)
		}
	}
	if len(o.Missing) > 0 {
		page.add("foot", "foot/missing", "missing", o.Missing)
	}
}

// columnHead is a column without what is in it, which are parts of their own.
type columnHead struct {
	Name, Note, Tone, List string
	Machines, Loose        int
	Pools                  []view.Pool
}

func layMachine(page *sheet, m *view.Page, ask question) {
	if m == nil {
		page.add("main", "machine/none", "none", struct{ Namespace, Name string }{ask.namespace, ask.name})
		return
	}
	head := *m
	head.Tree.Parts, head.Steps, head.Events, head.Snapshots, head.Schedules, head.Backups, head.Spare, head.Disks = nil, nil, nil, nil, nil, nil, nil, nil
	page.add("main", "machine/head", "head", head)
	page.add("main", "machine/steps", "steps", m.Steps)
	page.add("main", "machine/disks", "disks", struct {
		Namespace, Machine string
		Disks              []view.Disk
		Spare              []string
		Running            bool
	}{m.Namespace, m.Name, m.Disks, m.Spare, m.HasGuest})
	page.add("main", "machine/snapshots", "snapshots", m.Snapshots)
	page.add("main", "machine/take", "take", m.Name)
	page.add("main", "machine/schedules", "schedules", m.Schedules)
	page.add("main", "machine/backups", "backups", m.Backups)
	page.add("main", "machine/tree", "tree", m.Tree)
	page.add("main", "machine/events", "events", m.Events)
}
