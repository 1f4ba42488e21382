package cidr

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestOverlap(t *testing.T) { checktest.Run(t, Overlap()) }

func TestFamily(t *testing.T) { checktest.Run(t, Family()) }

func TestMasquerade(t *testing.T) { checktest.Run(t, Masquerade()) }
