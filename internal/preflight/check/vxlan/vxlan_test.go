package vxlan

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestClash(t *testing.T) { checktest.Run(t, Clash()) }

func TestUntracked(t *testing.T) { checktest.Run(t, Untracked()) }
