// Command program is nothing but its version.
package main

import "github.com/berth-vm/berth/internal/version"

func main() { version.Answer() }
