package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-vm/berth/pkg/inflate"
)

// bounds are the limits that no program can beat. Each takes the directory of the images and a file it may write.
var bounds = map[string]func(images, out string) (sample, error){
	"inflate1": func(images, _ string) (sample, error) { return inflateClusters(images, 1) },
	"inflate":  func(images, _ string) (sample, error) { return inflateClusters(images, runtime.GOMAXPROCS(0)) },
	"write":    writeData,
}

// inflateClusters decodes the clusters of the compressed qcow2 from memory to memory.
func inflateClusters(images string, threads int) (sample, error) {
	clusters, err := compressedClusters(filepath.Join(images, "a.qcow2"))
	if err != nil {
		return sample{}, err
	}
	var next atomic.Int64
	errs := make([]error, threads)
	var wg sync.WaitGroup
	begin := time.Now()
	for t := range threads {
		wg.Go(func() {
			var d inflate.Decoder
			dst := make([]byte, clusterSize)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(clusters) || errs[t] != nil {
					return
				}
				if _, _, err := d.Inflate(dst, clusters[i]); err != nil && !errors.Is(err, inflate.Full) {
					errs[t] = err
				}
			}
		})
	}
	wg.Wait()
	return sample{seconds: time.Since(begin).Seconds()}, errors.Join(errs...)
}

const (
	clusterBits = 16 // what qemu-img makes
	clusterSize = 1 << clusterBits
)

// compressedClusters finds the compressed clusters of a qcow2 file that qemu-img made. It trusts the file: the worker's own
// reader, which does not, is being measured.
func compressedClusters(path string) (clusters [][]byte, err error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	if be.Uint32(p[20:]) != clusterBits {
		return nil, fmt.Errorf("%s has clusters of 1<<%d bytes", path, be.Uint32(p[20:]))
	}
	l1 := p[be.Uint64(p[40:]):]
	for i := range int(be.Uint32(p[36:])) {
		off := be.Uint64(l1[8*i:]) & 0x00fffffffffffe00
		for j := 0; off != 0 && j < clusterSize/8; j++ {
			e := be.Uint64(p[off+uint64(8*j):])
			if e>>62&1 == 0 {
				continue
			}
			const offBits = 62 - (clusterBits - 8)
			from := e & (1<<offBits - 1)
			n := (e>>offBits&(1<<(62-offBits)-1)+1)*512 - from%512
			clusters = append(clusters, p[from:min(from+n, uint64(len(p)))])
		}
	}
	return clusters, nil
}

// writeData writes the disk's data, and nothing else, past the page cache and waits until it is on stable storage.
func writeData(images, path string) (s sample, err error) {
	in, err := os.Open(filepath.Join(images, "c.raw"))
	if err != nil {
		return s, err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC|syscall.O_DIRECT, 0o644)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// Mapped, because O_DIRECT wants whole pages.
	buf, err := syscall.Mmap(-1, 0, 4<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, syscall.Munmap(buf)) }()
	begin := time.Now()
	for off := int64(0); ; {
		const seekData, seekHole = 3, 4
		from, err := in.Seek(off, seekData)
		if errors.Is(err, syscall.ENXIO) {
			break
		}
		if err != nil {
			return s, err
		}
		if off, err = in.Seek(from, seekHole); err != nil {
			return s, err
		}
		for from < off {
			n, err := in.ReadAt(buf[:min(int64(len(buf)), off-from)], from)
			if err != nil && !errors.Is(err, io.EOF) {
				return s, err
			}
			if _, err := out.WriteAt(buf[:n], from); err != nil {
				return s, err
			}
			from += int64(n)
		}
	}
	err = out.Sync()
	return sample{seconds: time.Since(begin).Seconds()}, err
}
