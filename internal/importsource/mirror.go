package importsource

import (
	"fmt"
	"slices"
	"strings"
)

// Mirrors say where images are read from instead of where they are named. The longest prefix that fits wins.
type Mirrors []Mirror

// Mirror is a prefix of images' names ("quay.io/containerdisks") and what takes its place ("registry.local:5000/disks").
type Mirror struct{ From, To string }

// ParseMirrors reads "PREFIX=PREFIX", separated by commas or white space.
func ParseMirrors(text string) (Mirrors, error) {
	var all Mirrors
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
		from, to, found := strings.Cut(one, "=")
		from, to = strings.TrimSuffix(from, "/"), strings.TrimSuffix(to, "/")
		if !found || !prefix(from) || !prefix(to) {
			return nil, fmt.Errorf("%q is not PREFIX=PREFIX, such as quay.io/containerdisks=registry.example.com:5000/disks", one)
		}
		if slices.ContainsFunc(all, func(m Mirror) bool { return m.From == from }) {
			return nil, fmt.Errorf("%s is there twice", from)
		}
		all = append(all, Mirror{From: from, To: to})
	}
	return all, nil
}

// prefix reports whether it begins with the host of a registry, and has neither scheme, tag nor digest.
func prefix(s string) bool {
	host, rest, _ := strings.Cut(s, "/")
	return isHost(host) && !strings.ContainsAny(rest, ":@") && !strings.Contains(s, "//")
}

func isHost(s string) bool {
	return s == "localhost" || strings.ContainsAny(s, ".:") && !strings.HasSuffix(s, ":") && !strings.Contains(s, "@")
}

// Image returns where an image is read from, named as containers name it ("quay.io/containerdisks/debian:13", "debian").
func (m Mirrors) Image(image string) string {
	name := image
	if first, _, found := strings.Cut(image, "/"); !found {
		name = "docker.io/library/" + image
	} else if !isHost(first) {
		name = "docker.io/" + image
	}
	best := Mirror{}
	for _, one := range m {
		rest, fits := strings.CutPrefix(name, one.From)
		if fits && (rest == "" || strings.ContainsAny(rest[:1], "/:@")) && len(one.From) > len(best.From) {
			best = one
		}
	}
	if best.From == "" {
		return image
	}
	return best.To + strings.TrimPrefix(name, best.From)
}

// All returns the addresses that images are read from.
func (m Mirrors) All(images []string) []string {
	var all []string
	for _, i := range images {
		all = append(all, m.Image(i))
	}
	return all
}

// URL is Image for an image that is named by a URL ("docker://quay.io/containerdisks/debian:13"). Other URLs stay as they are.
func (m Mirrors) URL(url string) string {
	const scheme = "docker://"
	if image, is := strings.CutPrefix(url, scheme); is {
		return scheme + m.Image(image)
	}
	return url
}
