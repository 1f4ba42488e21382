package build

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// kept is how many versions of one thing stay in the cache: that of a running lab,
// and a few later ones.
const kept = 4

// Prune deletes all but the newest entries of dir, in which every entry is one version of one thing.
func Prune(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("prune the cache: %w", err)
	}
	age := func(i int) int64 {
		info, err := entries[i].Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	sort.Slice(entries, func(i, j int) bool { return age(i) > age(j) })
	for i := kept; i < len(entries); i++ {
		if err := os.RemoveAll(filepath.Join(dir, entries[i].Name())); err != nil {
			return fmt.Errorf("prune the cache: %w", err)
		}
	}
	return nil
}
