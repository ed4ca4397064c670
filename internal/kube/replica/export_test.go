package replica

var (
	PackSidecars   = packSidecars
	UnpackSidecars = unpackSidecars
)

// PackQuestions and UnpackQuestions are what the board does with questions.
func PackQuestions(all map[string]Question) ([]byte, int, error) { return packed(all) }

func UnpackQuestions(data []byte) (map[string]Question, error) { return unpacked[Question](data) }
