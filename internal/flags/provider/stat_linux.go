package provider

import (
	"io/fs"
	"syscall"
)

// identity is what tells a file from another in its place: all but the time of its last access, which reading changes
// for as long as the file is dated in the future.
func identity(info fs.FileInfo) any {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return [...]uint64{uint64(stat.Dev), stat.Ino, uint64(stat.Ctim.Sec), uint64(stat.Ctim.Nsec)}
	}
	return nil
}
