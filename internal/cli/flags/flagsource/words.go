package flagsource

import (
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// Shown is the result of a flag on the nth node, in words.
func Shown(results []*flagset.Result, n int) string {
	switch {
	case results == nil:
		return "no flag"
	case results[n].Code != "":
		return string(results[n].Code)
	case results[n].Default():
		return "the caller's default"
	}
	return setting.ValueText(results[n].Value)
}

// OrNone is a text, or "none" if it is empty.
func OrNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
