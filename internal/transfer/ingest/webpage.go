package ingest

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// refusePage refuses a web page at a URL that should lead to an image: a login, a listing, a "not found" under 200. It has no
// signature, so it would become a raw disk. An image that a server merely calls a page is one all the same.
func (i *importing) refusePage(kind format.Kind, wrap decode.Kind, head []byte) error {
	if !i.Task.Source.IsFile() || kind != format.Raw && kind != format.Unsigned {
		return nil
	}
	called := wrap == decode.None && (i.info.MediaType == "text/html" || i.info.MediaType == "application/xhtml+xml")
	if !called && !isPage(head) {
		return nil
	}
	how := fmt.Sprintf("begins with %q", bytes.TrimSpace(head[:min(len(head), 40)]))
	if called {
		how = fmt.Sprintf("is called %s by its server and %s", i.info.MediaType, how)
	}
	return task.Errorf(task.BadImage, "%s is a web page, not a disk image: it %s. Check that the URL leads to the "+
		"file itself. If these bytes are the disk, say so with the annotation berth.dev/contents: raw", i.info.Name, how)
}

// isPage tells HTML by its beginning, as browsers do (https://mimesniff.spec.whatwg.org, 7.1).
func isPage(head []byte) bool {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	const enough = 512
	head = head[:min(len(head), enough)]
	kind := http.DetectContentType(head)
	if strings.HasPrefix(kind, "text/xml") {
		return bytes.Contains(bytes.ToLower(head), []byte("<html")) || bytes.Contains(bytes.ToLower(head), []byte("<!doctype html"))
	}
	return strings.HasPrefix(kind, "text/html")
}
