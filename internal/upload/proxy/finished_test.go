package proxy

import (
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/upload/tus"
)

// TestFinishedUpload: the client that sent what a claim was filled with is told so, also when the worker is gone; a client that
// sent something else is not.
func TestFinishedUpload(t *testing.T) {
	const mine, other = "5-image-0123456789abcdef", "5-image-fedcba9876543210"
	h := newHouse(t, func(o *Options) { o.Patience = time.Millisecond })
	h.lacks["done"], h.lacks["unknown"] = &Finished{Upload: mine}, &Finished{}
	at := func(claim, id string) string { return tus.Path + "/uid-" + claim + "." + id }
	if status, _, headers := h.send("HEAD", at("done", mine), h.token("done", time.Minute), nil); status != 200 || headers.Get(tus.Offset) != "5" || headers.Get(tus.Length) != "5" {
		t.Errorf("HEAD of the upload that was taken: %d %v", status, headers)
	}
	if status, _, headers := h.send("PATCH", at("done", mine), h.token("done", time.Minute), nil, tus.Offset, "5"); status != 204 || headers.Get(tus.Offset) != "5" {
		t.Errorf("PATCH at its end: %d %v", status, headers)
	}
	h.answers(409, "complete", "PATCH", at("done", mine), h.token("done", time.Minute), nil, tus.Offset, "0")
	h.answers(409, "already finished uploading", "PATCH", at("done", other), h.token("done", time.Minute), nil, tus.Offset, "5")
	h.answers(409, "already finished uploading", "PATCH", at("unknown", mine), h.token("unknown", time.Minute), nil, tus.Offset, "5")
	h.answers(409, "already finished uploading", "POST", tus.Path, h.token("done", time.Minute), nil, tus.Length, "5")
}
