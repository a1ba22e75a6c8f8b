// Package boot identifies the present boot of the machine, so that process IDs and times since
// boot that were written before are not taken for those of now.
package boot
