package kind

// Surge says which nodes go and come.
type Surge struct {
	// Waves are the first of the plan's waves, in the same order.
	Waves []SurgeWave `json:"waves"`
	// Hooks are the commands, split into words.
	AddHook    []string `json:"addHook"`
	RemoveHook []string `json:"removeHook"`
}

// SurgeWave names the nodes of a wave that go, and the slots of those that come: a node is bound to its slot by the
// label theseus.dev/slot, and steps name the slot.
type SurgeWave struct {
	Name string   `json:"name"`
	Old  []string `json:"old"`
	New  []string `json:"new"`
}

// Slots are the names that the plan has for nodes that come.
func (s *Surge) Slots() []string {
	var slots []string
	if s == nil {
		return nil
	}
	for _, wave := range s.Waves {
		slots = append(slots, wave.New...)
	}
	return slots
}

// Slots are the names that the plan has for nodes that come; none where no node does.
func (p *Plan) Slots() []string { return p.Surge.Slots() }

// Hooks are the commands that add and remove a node; none where no node comes or goes.
func (p *Plan) Hooks() (hooks [][]string) {
	if p.Surge == nil {
		return nil
	}
	return [][]string{p.Surge.AddHook, p.Surge.RemoveHook}
}

// Others are the slots of nodes that come in the place of those of a wave, by its place among the plan's waves.
func (p *Plan) Others(wave int) []string {
	if p.Surge == nil || wave >= len(p.Surge.Waves) {
		return nil
	}
	return p.Surge.Waves[wave].New
}
