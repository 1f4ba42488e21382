// Package compact is the form in which a plan's steps are stored, without repetition. Fold converts steps into this
// form, and Expand converts it back into the steps.
//
// The form has two elements, and people can read both:
//
//   - An entry with forEach in a step's list repeats its list under do for each of the nodes that it names.
//     {node} in it is the name of the node.
//   - A procedure is a step that runs several times, but is stored once. A step that runs it is a row: the procedure,
//     the wave
//     and the nodes. {wave} and {part} in a procedure are the row's wave and its part, {nodes} are the nodes as people
//     read them, and {node} outside of forEach is the first of them.
//
// Fold writes a step in full if it would not expand to exactly the same step. So a plan always means the steps that
// were made and verified. Only the names of nodes and waves are ever replaced.
//
// Belongs here: the form, and the proof that it is exact. Does not belong here: YAML and the rest of a plan's file
// (plan), and what steps mean (step).
package compact
