package erofs

import (
	"archive/tar"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// place is a directory of the layer, and the one that the layers below have there; nil if they have none.
type place struct{ own, lower *node }

// named is a name in a directory of the layer.
type named struct {
	dir  *node
	base string
}

// dir finds a directory of the layer. Symbolic links of this layer and of those below are followed, and never lead out of the root.
// What is missing on the way is made: as the layers below have it, if they do.
func (b *builder) dir(name string) (place, error) {
	way := []place{{b.root, b.lowerRoot()}}
	todo, hops := strings.Split(name, "/"), 0
	if err := b.walk(len(todo)); err != nil {
		return place{}, err
	}
	for len(todo) > 0 {
		step := todo[0]
		todo = todo[1:]
		switch {
		case step == "" || step == ".":
			continue
		case step == "..":
			way = way[:max(1, len(way)-1)]
			continue
		case len(step) > maxName:
			return place{}, task.Errorf(task.BadImage, "a directory's name is longer than %d bytes: %.60q", maxName, step)
		}
		here := way[len(way)-1]
		own, lower := here.own.children[step], b.below.child(here.lower, step)
		link := own
		if own == nil {
			link = lower
		}
		if link.is(typeLink) {
			if hops++; hops > maxHops {
				return place{}, task.Errorf(task.BadImage, "%.200q leads through more than %d symbolic links", name, maxHops)
			}
			if path.IsAbs(link.target) {
				way = way[:1]
			}
			todo = append(strings.Split(link.target, "/"), todo...)
			if err := b.walk(len(todo)); err != nil { // those that were there before are copied
				return place{}, err
			}
			continue
		}
		next, err := b.enter(here.own, step, lower)
		if err != nil {
			return place{}, err
		}
		way = append(way, next)
	}
	return way[len(way)-1], nil
}

func (b *builder) lowerRoot() *node {
	if b.root.opaque {
		return nil
	}
	return b.below.root
}

// enter goes into a directory, which is made if the layer does not have it.
func (b *builder) enter(dir *node, name string, lower *node) (place, error) {
	own := dir.children[name]
	switch {
	case own.is(typeDir):
	case own != nil && !own.isWhiteout():
		return place{}, task.Errorf(task.BadImage, "%.200q is a file, and has files in it", name)
	default:
		if err := b.one(name); err != nil {
			return place{}, err
		}
		gone := own != nil
		own = newDir()
		own.implied, own.opaque = true, gone
		if !gone {
			inherit(own, lower)
		}
		dir.children[name] = own
	}
	if own.opaque || !lower.is(typeDir) {
		lower = nil
	}
	return place{own, lower}, nil
}

// inherit gives a directory that is not in the layer itself the attributes that it has in the layers below.
func inherit(own, lower *node) {
	if lower.is(typeDir) {
		own.mode, own.uid, own.gid, own.mtime, own.nsec, own.xattrs = lower.mode, lower.uid, lower.gid, lower.mtime, lower.nsec, lower.xattrs
	}
}

// put places a file. What the archive had there before is replaced; two directories become one.
func (b *builder) put(dir, base string, n *node) error {
	at, err := b.dir(dir)
	if err != nil {
		return err
	}
	old := b.root
	if base != "" {
		old = at.own.children[base]
	} else if !n.is(typeDir) {
		return task.Errorf(task.BadImage, "its root is no directory")
	}
	if old.is(typeDir) && n.is(typeDir) {
		old.mode, old.uid, old.gid, old.mtime, old.nsec, old.xattrs, old.implied = n.mode, n.uid, n.gid, n.mtime, n.nsec, n.xattrs, false
		return nil
	}
	if old != nil && old.isWhiteout() && n.is(typeDir) {
		n.opaque = true // what is below is taken away, and this is something else
	}
	if err := b.one(base); err != nil {
		return err
	}
	at.own.children[base] = n
	delete(b.up, named{at.own, base})
	return nil
}

// hardLink gives a file another name. One of the layers below is in this layer from then on, under both.
func (b *builder) hardLink(h *tar.Header, dir, base string) error {
	targetDir, targetBase := path.Split(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"))
	at, err := b.dir(targetDir)
	if err != nil {
		return err
	}
	n := at.own.children[targetBase]
	if lower := b.below.child(at.lower, targetBase); n == nil && lower != nil && !lower.is(typeDir) {
		if n, err = b.copyUp(at.own, targetBase, lower); err != nil {
			return err
		}
	}
	switch {
	case n == nil && b.below.child(at.lower, targetBase) == nil || n != nil && n.isWhiteout():
		return task.Errorf(task.BadImage, "%.200q is a hard link to %.200q, which is not there", h.Name, h.Linkname)
	case n == nil || n.is(typeDir):
		return task.Errorf(task.BadImage, "%.200q is a hard link to a directory", h.Name)
	case base == "":
		return task.Errorf(task.BadImage, "its root is no directory")
	}
	if n.also++; n.also > maxLinks {
		return task.Errorf(task.BadImage, "%.200q has more than %d names", h.Linkname, maxLinks)
	}
	return b.put(dir, base, n)
}

// copyUp has a file of the layers below in this one too, as overlayfs does before it gives it another name.
func (b *builder) copyUp(dir *node, base string, lower *node) (*node, error) {
	if err := b.one(base); err != nil {
		return nil, err
	}
	n := lower.alike()
	if n.is(typeRegular) {
		from := io.NewSectionReader(b.below.images[lower.image], int64(lower.block)*blockSize, n.size)
		if err := b.image.data(n, from); err != nil {
			return nil, err
		}
	}
	dir.children[base] = n
	b.up[named{dir, base}] = true
	return n, nil
}

// hide makes a directory one whose files of the layers below are gone.
func (b *builder) hide(dir string) error {
	at, err := b.dir(dir)
	if err != nil {
		return err
	}
	at.own.opaque = true
	return nil
}

// takeAway hides a file of the layers below. One of this layer stays, wherever in the archive it is.
func (b *builder) takeAway(dir, base string) error {
	if base == "." || base == ".." {
		return task.Errorf(task.BadImage, "it takes away a directory's own name")
	}
	at, err := b.dir(dir)
	if err != nil {
		return err
	}
	switch old := at.own.children[base]; {
	case old.is(typeDir):
		if old.opaque = true; old.implied {
			inherit(old, newDir())
		}
	case b.up[named{at.own, base}]:
		at.own.children[base] = whiteout() // the archive gave it another name, and does not have it itself
		delete(b.up, named{at.own, base})
	case old == nil:
		if err := b.one(base); err != nil {
			return err
		}
		at.own.children[base] = whiteout()
	}
	return nil
}

// tidy removes whiteouts that hide nothing, because overlayfs shows a whiteout in a directory that no layer below has, and the
// directories that had only such whiteouts.
func tidy(own, lower *node) {
	if !lower.is(typeDir) {
		own.opaque = false
		lower = nil
	}
	merged := lower != nil && !own.opaque
	for name, n := range own.children {
		switch {
		case n.isWhiteout() && !merged:
			delete(own.children, name)
		case n.is(typeDir):
			var below *node
			if merged {
				below = lower.children[name]
			}
			tidy(n, below)
			if n.implied && !n.opaque && len(n.children) == 0 && !below.is(typeDir) {
				delete(own.children, name)
			}
		}
	}
}

// mark tells overlayfs which directories are opaque.
func mark(n *node) {
	for todo := []*node{n}; len(todo) > 0; {
		n = todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n.opaque {
			n.xattrs = maps.Clone(n.xattrs) // the tree of all layers has them too, and is not to have this one
			if n.xattrs == nil {
				n.xattrs = map[string]string{}
			}
			n.xattrs["trusted.overlay.opaque"] = "y"
		}
		for _, c := range n.children {
			if c.is(typeDir) {
				todo = append(todo, c)
			}
		}
	}
}
