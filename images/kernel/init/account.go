//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// account is the user and groups that a program runs as.
type account struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

func readFile(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return "" // an image need not have users
	}
	return string(text)
}

// lookUp reads a user as images name it, user[:group] by names or numbers, with the help of the image's own lists. A number that is in
// no list is a user as well.
func lookUp(user, passwd, group string) (account, error) {
	name, groupName, hasGroup := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	who := account{home: "/"}
	number, numErr := strconv.ParseUint(name, 10, 32)
	who.uid = uint32(number)
	found := ""
	for fields := range lines(passwd, 7) {
		if fields[0] != name && (numErr != nil || fields[2] != strconv.FormatUint(number, 10)) {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		if err == nil && err2 == nil {
			who.uid, who.gid, who.home, found = uint32(uid), uint32(gid), fields[5], fields[0]
			break
		}
	}
	if found == "" && numErr != nil {
		return who, fmt.Errorf("the image has no user %q", name)
	}
	if !hasGroup {
		for fields := range lines(group, 4) {
			gid, err := strconv.ParseUint(fields[2], 10, 32)
			if err == nil && found != "" && slices.Contains(strings.Split(fields[3], ","), found) {
				who.groups = append(who.groups, uint32(gid))
			}
		}
		return who, nil
	}
	if gid, err := strconv.ParseUint(groupName, 10, 32); err == nil {
		who.gid = uint32(gid)
		return who, nil
	}
	for fields := range lines(group, 4) {
		if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil && fields[0] == groupName {
			who.gid = uint32(gid)
			return who, nil
		}
	}
	return who, fmt.Errorf("the image has no group %q", groupName)
}

// lines returns the lines of a list that have this number of fields.
func lines(list string, fields int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(list) {
			if f := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(f) >= fields && !yield(f) {
				return
			}
		}
	}
}
