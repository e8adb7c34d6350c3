// Command gen writes the manifests of the library from its tables.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/config/library"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gen DIRECTORY")
	}
	manifests, err := library.Manifests()
	for name, text := range manifests {
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name), text, 0o600)
		}
	}
	if err != nil {
		log.Fatalf("write the library: %v", err)
	}
}
