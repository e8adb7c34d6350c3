package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// packagesFile is where hack/images writes which Debian packages an image has; those of another architecture than the image's are in a file
// that has its name as an ending, as packages-amd64.
const packagesFile = "usr/share/berth/packages"

// component is a part of an image or of a program.
type component struct {
	name, version, purl string
	in                  map[string]bool // the programs that contain it; none for a package of the system
}

// contents lists the components of an image or a program, by purl.
type contents map[string]*component

func (c contents) add(name, version, purl, program string) {
	if c[purl] == nil {
		c[purl] = &component{name: name, version: version, purl: purl, in: map[string]bool{}}
	}
	if program != "" {
		c[purl].in[program] = true
	}
}

// program adds the modules that a Go program was linked from, as it says itself.
func (c contents) program(name string, binary []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("read what %s is made of: %w", name, err)
	}
	c.add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"), name)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "" { // a folder of this checkout: the program's own
			continue
		}
		c.add(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version, name)
	}
	return nil
}

// packages adds those of Debian that a list names, one "name version" in a line.
func (c contents) packages(list []byte, arch string) {
	for line := range strings.Lines(string(list)) {
		if words := strings.Fields(line); len(words) == 2 {
			purl := "pkg:deb/debian/" + words[0] + "@" + strings.ReplaceAll(words[1], "+", "%2B") + "?arch=" + arch
			c.add(words[0], words[1], purl, "")
		}
	}
}

// files calls visit for every regular file in an image.
func files(image v1.Image, visit func(name string, content io.Reader) error) error {
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("read layers: %w", err)
	}
	for _, l := range layers {
		if err := layerFiles(l, visit); err != nil {
			return err
		}
	}
	return nil
}

func layerFiles(l v1.Layer, visit func(name string, content io.Reader) error) error {
	r, err := l.Uncompressed()
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	defer func() { _ = r.Close() }()
	entries := tar.NewReader(r)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read layer: %w", err)
		}
		if h.Typeflag == tar.TypeReg {
			if err := visit(h.Name, entries); err != nil {
				return err
			}
		}
	}
}

// goProgram reports whether a file of an image is one of our programs. Other files of that folder are Debian's, and not written in Go.
func goProgram(name string, head []byte) bool {
	return path.Dir(name) == "usr/bin" && bytes.HasPrefix(head, []byte("\x7fELF"))
}

// imageContents reads what is in an image out of the image itself.
func imageContents(image v1.Image, arch string) (contents, error) {
	c := contents{}
	err := files(image, func(name string, content io.Reader) error {
		other, foreign := strings.CutPrefix(name, packagesFile+"-")
		if name != packagesFile && !foreign && path.Dir(name) != "usr/bin" {
			return nil
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if foreign {
			c.packages(text, other)
		} else if name == packagesFile {
			c.packages(text, arch)
		} else if goProgram(name, text) && bytes.Contains(text, []byte("\xff Go buildinf:")) {
			return c.program(path.Base(name), text)
		}
		return nil
	})
	return c, err
}

// sboms writes one SPDX document for each image of each architecture and for each virtctl.
func (m *maker) sboms(context.Context) error {
	release, err := readImages(m.dist)
	if err != nil {
		return err
	}
	for _, i := range release {
		manifest, err := i.index.IndexManifest()
		if err != nil {
			return fmt.Errorf("read %s: %w", i.name, err)
		}
		for _, d := range manifest.Manifests {
			one, err := i.index.Image(d.Digest)
			if err != nil {
				return fmt.Errorf("read %s: %w", i.name, err)
			}
			c, err := imageContents(one, d.Platform.Architecture)
			if err != nil {
				return fmt.Errorf("%s: %w", i.name, err)
			}
			purl := fmt.Sprintf("pkg:oci/%s@%s?arch=%s", i.name, strings.ReplaceAll(d.Digest.String(), ":", "%3A"), d.Platform.Architecture)
			if err := m.sbom(i.name+"-"+d.Platform.Architecture, purl, d.Digest.Hex, c); err != nil {
				return err
			}
		}
	}
	return m.programSBOMs()
}

// programSBOMs writes those of virtctl. Which modules it has differs between systems.
func (m *maker) programSBOMs() error {
	for _, p := range platforms {
		archive := archiveOf(p.os, p.arch)
		program, err := unpacked(filepath.Join(m.dist, archive), programName(p.os))
		if err != nil {
			return err
		}
		sum, err := sha256Of(filepath.Join(m.dist, archive))
		if err != nil {
			return err
		}
		c := contents{}
		if err := c.program("virtctl", program); err != nil {
			return err
		}
		purl := "pkg:generic/virtctl@" + m.is.Version + "?os=" + p.os + "&arch=" + p.arch
		if err := m.sbom("virtctl-"+p.os+"-"+p.arch, purl, sum, c); err != nil {
			return err
		}
	}
	return nil
}

// sbom writes an SPDX 2.3 document.
func (m *maker) sbom(name, purl, sha256 string, c contents) error {
	subject := described("Subject", component{name, m.is.Version, purl, nil})
	subject.PackageLicenseDeclared = "Apache-2.0"
	subject.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: "Berth"}
	subject.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sha256}}
	packages := []*spdx.Package{subject}
	relations := []*spdx.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", "Subject"), Relationship: "DESCRIBES"}}
	for n, key := range slices.Sorted(maps.Keys(c)) {
		part := described(fmt.Sprintf("Package-%d", n+1), *c[key])
		packages = append(packages, part)
		relations = append(relations, &spdx.Relationship{RefA: common.MakeDocElementID("", "Subject"),
			RefB: common.MakeDocElementID("", string(part.PackageSPDXIdentifier)), Relationship: "CONTAINS"})
	}
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: "https://github.com/berth-vm/berth/spdx/" + name + "-" + sha256,
		CreationInfo:      &spdx.CreationInfo{Created: m.is.Date, Creators: []common.Creator{{CreatorType: "Tool", Creator: "berth-release-" + m.is.Version}}},
		Packages:          packages, Relationships: relations,
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		return fmt.Errorf("SBOM of %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent(" ")); err != nil {
		return fmt.Errorf("write SBOM of %s: %w", name, err)
	}
	return m.write("sbom/"+name+".spdx.json", out.Bytes())
}

// described is a part of the document.
func described(id string, part component) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier: common.ElementID(id), PackageName: part.name, PackageVersion: part.version, PackageDownloadLocation: "NOASSERTION",
		PackageLicenseDeclared: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: part.purl}},
	}
	if len(part.in) > 0 {
		p.PackageComment = "linked into " + strings.Join(slices.Sorted(maps.Keys(part.in)), ", ")
	}
	return p
}
