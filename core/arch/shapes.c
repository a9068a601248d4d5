#define _GNU_SOURCE
/* Tensors by name: the stack and the layer they belong to, and their role there. */
#include "core/arch/shapes.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

#define STACK_MAX 64
#define WORD_MAX 12 /* of a name behind its layer's number */

enum role {
    ROLE_NONE,
    ROLE_QUERY,
    ROLE_KEY,
    ROLE_VALUE,
    ROLE_KEY_VALUE, /* both in one tensor */
    ROLE_FUSED,     /* with the queries */
    ROLE_RESULT,
    ROLE_LATENT,
    ROLE_CONVOLUTION,
    ROLE_STATE,
    ROLE_UP,
    ROLE_GATE_UP, /* both in one tensor */
};

struct role_row {
    enum role role;
    const char *words; /* the tensor's own name, without ".weight" */
};

static const struct role_row role_rows[] = {
    {ROLE_QUERY, "q_proj, query, q, wq, query_proj, q_lin, attn_q, to_q, project_q"},
    {ROLE_KEY, "k_proj, key, k, wk, key_proj, k_lin, attn_k, to_k, project_k"},
    {ROLE_VALUE, "v_proj, value, v, wv, value_proj, v_lin, attn_v, to_v, project_v"},
    {ROLE_KEY_VALUE, "kv_proj, to_kv"},
    {ROLE_FUSED, "qkv_proj, query_key_value, c_attn, Wqkv, wqkv, qkv, attn_qkv, W_pack, att_proj"},
    {ROLE_RESULT, "o_proj, out_proj, dense, wo, c_proj, attn_output, o, out_lin, attn_out, to_out"},
    {ROLE_LATENT, "kv_a_proj_with_mqa, attn_kv_a_mqa"},
    {ROLE_STATE, "A_log, ssm_a"},
    {ROLE_UP, "up_proj, fc1, c_fc, fc_in, dense_h_to_4h, w1, wi, wi_0, ffn_up, lin1, linear1"},
    {ROLE_GATE_UP, "gate_up_proj, input_linear"},
};

/* ---- names ---- */

struct word {
    const char *text;
    size_t length;
};

static const char layer_words[] = "layers, h, blk, blocks, block, layer";

static bool is_in(const char *words, const struct word *word)
{
    return word->length > 0 && gc_text_find_word(words, word->text, word->length) >= 0;
}

static bool contains(const struct word *word, const char *part)
{
    return memmem(word->text, word->length, part, strlen(part)) != NULL;
}

struct place {
    struct word stack; /* up to the number */
    uint32_t layer;
    uint32_t count; /* of words behind the number, without "weight" */
    struct word words[WORD_MAX];
};

static struct word next_word(const char **name)
{
    struct word word = {*name, strcspn(*name, ".")};
    *name += word.length;
    if (**name == '.')
        (*name)++;
    return word;
}

/* False if the name has no layer, or is of a bias. */
static bool find_place(const char *name, struct place *place)
{
    const char *at = name;
    struct word before = {name, 0};
    uint64_t number = 0;
    memset(place, 0, sizeof(*place));
    for (;;) {
        const struct word word = next_word(&at);
        if (word.length == 0)
            return false;
        if (gc_text_uint(word.text, word.length, &number) && is_in(layer_words, &before))
            break;
        before = word;
    }
    place->stack = (struct word){name, (size_t)(before.text + before.length - name)};
    place->layer = number < GC_ARCH_LAYER_MAX ? (uint32_t)number : GC_ARCH_LAYER_MAX;
    while (*at != '\0' && place->count < WORD_MAX)
        place->words[place->count++] = next_word(&at);
    if (place->count > 0 && is_in("weight", &place->words[place->count - 1]))
        place->count--;
    else if (place->count > 0 && is_in("bias", &place->words[place->count - 1]))
        return false;
    return place->layer < GC_ARCH_LAYER_MAX && place->count > 0;
}

static bool any_contains(const struct place *place, const char *part)
{
    for (uint32_t i = 0; i < place->count; i++) {
        if (contains(&place->words[i], part))
            return true;
    }
    return false;
}

static bool is_cross(const struct place *place)
{
    return any_contains(place, "cross") || any_contains(place, "encoder_att") ||
           any_contains(place, "EncDec");
}

static bool is_expert(const struct place *place)
{
    return any_contains(place, "expert") || any_contains(place, "_exps") ||
           any_contains(place, "_shexp") || any_contains(place, "sparse_moe");
}

/* Wrappers of a layer: "k_proj.linear.weight" is of k_proj. */
static uint32_t own_count(const struct place *place)
{
    uint32_t count = place->count;
    while (count > 1 && is_in("linear, base_layer", &place->words[count - 1]))
        count--;
    return count;
}

static enum role role_of(const struct place *place)
{
    const uint32_t count = own_count(place);
    const struct word *word = &place->words[count - 1];
    const struct word none = {"", 0};
    const struct word *before = count > 1 ? &place->words[count - 2] : &none;
    if (is_in("dense", word) && is_in("intermediate", before))
        return ROLE_UP;
    for (size_t i = 0; i < sizeof(role_rows) / sizeof(role_rows[0]); i++) {
        const struct role_row *row = &role_rows[i];
        if (!is_in(row->words, word))
            continue;
        if (row->role == ROLE_RESULT && !contains(before, "att") && !contains(before, "Att") &&
            !is_in("attn_output", word) && !is_in("output", before))
            return ROLE_NONE;
        return row->role;
    }
    return ROLE_NONE;
}

/* ---- stacks ---- */

struct stack {
    struct word name;
    uint32_t count;    /* the highest number of a layer, plus one */
    uint64_t elements; /* of the tensors with keys, states or convolutions beside them */
    bool is_aside;
};

struct stacks {
    uint32_t count;
    struct stack items[STACK_MAX];
};

/* Not the language model: encoders, and heads beside it. */
static bool is_aside(const struct word *name)
{
    static const char *const parts[] = {"vision",    "visual",    "image",   "audio", "speech",
                                        "tower",     "encoder",   "mtp",     "draft", "connector",
                                        "resampler", "perceiver", "qformer", "codec", "aligner",
                                        "depth",     "projector", "adapter", "eagle", "vit"};
    if (contains(name, "language_model") || contains(name, "text_model"))
        return contains(name, "encoder.layers") && contains(name, "decoder");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (contains(name, parts[i]))
            return true;
    }
    return false;
}

static struct stack *stack_of(struct stacks *stacks, const struct word *name)
{
    for (uint32_t i = stacks->count; i > 0; i--) {
        struct stack *stack = &stacks->items[i - 1];
        if (stack->name.length == name->length &&
            memcmp(stack->name.text, name->text, name->length) == 0)
            return stack;
    }
    if (stacks->count == STACK_MAX)
        return NULL;
    struct stack *stack = &stacks->items[stacks->count++];
    *stack = (struct stack){.name = *name, .is_aside = is_aside(name)};
    return stack;
}

static const struct stack *find_stack(const struct gc_model *model, struct stacks *stacks)
{
    const struct stack *best = NULL;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        struct place place;
        if (!find_place(model->tensors[i].name, &place))
            continue;
        struct stack *stack = stack_of(stacks, &place.stack);
        if (stack == NULL)
            continue;
        stack->count = place.layer >= stack->count ? place.layer + 1 : stack->count;
        if (!gc_add_u64(stack->elements, model->tensors[i].elements, &stack->elements))
            stack->elements = UINT64_MAX;
    }
    for (uint32_t i = 0; i < stacks->count; i++) {
        const struct stack *stack = &stacks->items[i];
        if (best == NULL || (best->is_aside && !stack->is_aside) ||
            (best->is_aside == stack->is_aside && stack->elements > best->elements))
            best = stack;
    }
    return best;
}

/* ---- shapes ---- */

/* Rows of a linear layer's weight; transformers' Conv1D has them as columns. */
static uint32_t rows_of(const struct gc_model_tensor *tensor, uint64_t hidden)
{
    uint64_t rows = tensor->dims[0];
    if (tensor->dim_count == 2 && rows == hidden && tensor->dims[1] != hidden)
        rows = tensor->dims[1];
    return rows <= UINT32_MAX ? (uint32_t)rows : 0;
}

/* Of the output projection: the side that is not the hidden size. */
static uint32_t columns_of(const struct gc_model_tensor *tensor, uint64_t hidden)
{
    uint64_t columns = tensor->dims[1];
    if (columns == hidden)
        columns = tensor->dims[0];
    return columns <= UINT32_MAX ? (uint32_t)columns : 0;
}

/* A causal convolution of each channel: [channels, 1, tokens]. */
static uint32_t convolved_of(const struct gc_model_tensor *tensor, const struct place *place)
{
    /* A convolution whose weights depend on the token: [tokens, channels]. */
    if (tensor->dim_count == 2 && is_in("static_weight", &place->words[place->count - 1]) &&
        tensor->dims[0] <= 64 && tensor->dims[1] <= UINT32_MAX / 64)
        return (uint32_t)(tensor->dims[0] * tensor->dims[1]);
    if (tensor->dim_count != 3 || tensor->dims[1] != 1 || tensor->dims[2] < 2 ||
        tensor->dims[2] > 64 || tensor->dims[0] > UINT32_MAX / 64)
        return 0;
    return (uint32_t)(tensor->dims[0] * tensor->dims[2]);
}

static void set_role(struct gc_shape_layer *layer, enum role role, uint32_t rows, uint32_t columns)
{
    switch (role) {
    case ROLE_QUERY:
        layer->query = rows;
        break;
    case ROLE_KEY:
        layer->key = rows;
        break;
    case ROLE_VALUE:
        layer->value = rows;
        break;
    case ROLE_KEY_VALUE:
        layer->key = layer->value = rows / 2;
        break;
    case ROLE_FUSED:
        layer->fused = rows;
        break;
    case ROLE_RESULT:
        layer->result = columns;
        break;
    case ROLE_LATENT:
        layer->latent = rows;
        break;
    case ROLE_UP:
        layer->intermediate = rows;
        break;
    case ROLE_GATE_UP:
        layer->intermediate = rows / 2;
        break;
    default:
        break;
    }
}

/* True if it was one of the sums', or bears on the layer that it is in. */
static bool add_unplaced(struct gc_shape_sums *sums, enum role role, uint32_t rows,
                         uint32_t convolved)
{
    sums->convolved += convolved;
    switch (role) {
    case ROLE_KEY:
        sums->key += rows;
        break;
    case ROLE_VALUE:
        sums->value += rows;
        break;
    case ROLE_KEY_VALUE:
        sums->key += rows / 2;
        sums->value += rows / 2;
        break;
    case ROLE_FUSED:
        sums->fused += rows;
        break;
    case ROLE_LATENT:
        sums->latent += rows;
        break;
    case ROLE_UP:
    case ROLE_GATE_UP:
        return false;
    default:
        break;
    }
    return true;
}

static void add_tensor(struct gc_shapes *shapes, const struct gc_model_tensor *tensor,
                       const struct place *place)
{
    struct gc_shape_layer *layer = &shapes->layers[place->layer];
    const enum role role = role_of(place);
    const uint32_t convolved = convolved_of(tensor, place);
    if (tensor->is_layer_guessed && !is_expert(place) && !is_cross(place) &&
        add_unplaced(&shapes->unplaced, role,
                     tensor->dim_count == 2 ? rows_of(tensor, shapes->hidden) : 0, convolved))
        return;
    if (role == ROLE_STATE && tensor->elements <= UINT32_MAX) {
        layer->decays = (uint32_t)tensor->elements;
        layer->has_matrix = tensor->dim_count == 2 && tensor->dims[0] > 1 && tensor->dims[1] > 1;
    }
    layer->convolved = layer->convolved + convolved;
    if (tensor->dim_count != 2 || is_expert(place))
        return;
    const uint32_t rows = rows_of(tensor, shapes->hidden);
    if (any_contains(place, "indexer")) {
        if (role == ROLE_KEY)
            layer->index = rows;
    } else if (is_cross(place)) {
        if (role == ROLE_KEY || role == ROLE_KEY_VALUE)
            layer->cross = role == ROLE_KEY ? rows : rows / 2;
        shapes->has_cross = shapes->has_cross || layer->cross > 0;
    } else if (!any_contains(place, "shared")) {
        set_role(layer, role, rows, columns_of(tensor, shapes->hidden));
    }
}

/* The hidden size: the columns of most projections of queries. */
static void find_hidden(const struct gc_model *model, const struct word *stack,
                        struct gc_shapes *shapes)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        struct place place;
        if (tensor->dim_count != 2 || !find_place(tensor->name, &place) ||
            place.stack.length != stack->length ||
            memcmp(place.stack.text, stack->text, stack->length) != 0)
            continue;
        const enum role role = role_of(&place);
        if ((role == ROLE_KEY || role == ROLE_LATENT || role == ROLE_FUSED) && !is_cross(&place)) {
            shapes->hidden = tensor->dims[1];
            return;
        }
    }
}

static void find_vocab(const struct gc_model *model, struct gc_shapes *shapes)
{
    static const char names[] =
        "embed_tokens, wte, word_embeddings, tok_embeddings, embed_in, token_embd, shared, embeddings";
    for (uint32_t i = 0; i < model->tensor_count && shapes->vocab == 0; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        const char *at = tensor->name;
        struct word last = {"", 0};
        if (tensor->dim_count != 2 || tensor->dims[1] != shapes->hidden)
            continue;
        while (*at != '\0') {
            const struct word word = next_word(&at);
            if (!is_in("weight", &word))
                last = word;
        }
        if (is_in(names, &last))
            shapes->vocab = tensor->dims[0];
    }
}

/* Convolutions over time between channels, and the encoder's positions. */
static void find_sound(const struct gc_model *model, struct gc_shapes *shapes)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        if (tensor->dim_count == 3 && tensor->dims[1] > 1 && tensor->dims[2] > 1 &&
            tensor->dims[2] < 256 && strstr(tensor->name, "conv") != NULL)
            shapes->has_sound = true;
        if (tensor->dim_count == 2 && strstr(tensor->name, "encoder.embed_positions") != NULL)
            shapes->positions = tensor->dims[0];
    }
}

static bool is_packed(const struct gc_model *model)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        if (tensor->dim_count == 2 &&
            gc_dtype_get_info(tensor->dtype)->kind != GC_DTYPE_CLASS_FLOAT &&
            gc_dtype_get_info(tensor->dtype)->kind != GC_DTYPE_CLASS_QUANTISED &&
            strstr(tensor->name, "weight") != NULL)
            return true;
    }
    return false;
}

void gc_shapes_read(const struct gc_model *model, uint64_t hidden, struct gc_shapes *shapes)
{
    struct stacks stacks = {0};
    memset(shapes, 0, sizeof(*shapes));
    const struct stack *stack = find_stack(model, &stacks);
    shapes->is_partial = model->tensor_count == 0;
    if (stack == NULL)
        return;
    shapes->layer_count = stack->count;
    shapes->is_encoder = contains(&stack->name, "encoder");
    shapes->is_packed = is_packed(model);
    if (shapes->is_packed)
        return;
    shapes->hidden = hidden;
    if (hidden == 0)
        find_hidden(model, &stack->name, shapes);
    find_vocab(model, shapes);
    find_sound(model, shapes);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        struct place place;
        if (find_place(model->tensors[i].name, &place) &&
            place.stack.length == stack->name.length &&
            memcmp(place.stack.text, stack->name.text, stack->name.length) == 0)
            add_tensor(shapes, &model->tensors[i], &place);
    }
}

/* ---- into the configuration and the layers ---- */

static void set_absent(struct gc_arch *arch, enum gc_arch_key key, uint64_t value)
{
    if (gc_arch_given(arch, key) == 0 && value > 0)
        arch->fields[key] = (struct gc_arch_field){.value = value, .known = true};
}

void gc_shapes_complete(const struct gc_shapes *shapes, struct gc_arch *arch)
{
    uint32_t kinds;
    if (gc_arch_items(arch, GC_ARCH_KINDS, &kinds) == NULL)
        set_absent(arch, GC_ARCH_LAYER_COUNT, shapes->layer_count);
    set_absent(arch, GC_ARCH_HIDDEN, shapes->hidden);
    set_absent(arch, GC_ARCH_VOCAB, shapes->vocab);
}

/* A row of heads: as many heads of the configuration's size as fit, else the size of its number of
 * heads, else one head. */
static void set_row(uint32_t row, uint32_t *heads, uint32_t *dim)
{
    if (*dim > 0 && row % *dim == 0)
        *heads = row / *dim;
    else if (*heads > 0 && row % *heads == 0)
        *dim = row / *heads;
    else
        *heads = 1, *dim = row;
}

/* Keys and values of a tensor that has the queries too. */
static uint32_t unfused(const struct gc_shape_layer *shape, const struct gc_layer *layer)
{
    const uint64_t queries =
        shape->result > 0 ? shape->result : (uint64_t)layer->heads * layer->key_dim;
    if (queries == 0 || queries >= shape->fused || (shape->fused - queries) % 2 != 0)
        return 0;
    const uint32_t row = (uint32_t)(shape->fused - queries) / 2;
    return layer->key_dim > 0 && row % layer->key_dim != 0 ? 0 : row;
}

static void set_attention(const struct gc_shape_layer *shape, struct gc_layer *layer)
{
    uint32_t key = shape->key;
    uint32_t value = shape->value > 0 ? shape->value : key;
    if (key == 0 && shape->fused > 0)
        key = value = unfused(shape, layer);
    if (key == 0)
        return;
    set_row(key, &layer->kv_heads, &layer->key_dim);
    layer->value_dim = value / layer->kv_heads;
    if (layer->heads == 0 && layer->key_dim > 0)
        layer->heads = (shape->query > 0 ? shape->query : shape->result) / layer->key_dim;
}

static uint64_t row_of(const struct gc_layer *layer)
{
    return (uint64_t)layer->kv_heads * ((uint64_t)layer->key_dim + layer->value_dim);
}

static void note_difference(uint32_t index, uint64_t given, uint64_t found, struct gc_notes *notes)
{
    char layer[GC_NOTE_NUMBER_BYTES];
    char first[GC_NOTE_NUMBER_BYTES];
    char second[GC_NOTE_NUMBER_BYTES];
    gc_notes_add(notes, "keys and values of a token in layer ", gc_note_number(index, layer),
                 ": the tensors have ", gc_note_number(found, second),
                 " elements, the configuration ", gc_note_number(given, first),
                 "; the tensors' are taken", NULL);
}

/* The state of linear attention by its rows: for each head a matrix of its keys and values, in 32
 * bits where it decays by learned factors (Yang et al., 2024), else in the type of activations, as
 * lightning attention (Qin et al., 2024). */
static void set_linear(const struct gc_shape_layer *shape, const struct gc_arch *arch,
                       struct gc_layer *layer)
{
    const uint64_t key = shape->key > 0 ? shape->key : shape->fused / 3;
    const uint64_t value = shape->value > 0 ? shape->value : shape->fused / 3;
    uint64_t heads = shape->decays;
    if (layer->is_size_known || shape->has_matrix || key == 0 || value == 0)
        return;
    if (heads == 0)
        heads = gc_arch_number(arch, GC_ARCH_HEADS, 0);
    if (heads == 0 || key % heads != 0 || value % heads != 0)
        return;
    if (shape->decays > 0)
        layer->size.wide = key * (value / heads);
    else
        layer->size.native = key * (value / heads);
    layer->is_size_known = true;
}

/* Convolutions of normed values, which stay in 32 bits. */
static bool is_wide(const struct gc_arch *arch)
{
    return gc_arch_is_type(
        arch, "inkling_mm_model, inkling_text, inkling2, inkling2_text, inkling2_loop, "
              "inkling2_loop_text");
}

static void set_state(const struct gc_shape_layer *shape, const struct gc_arch *arch,
                      struct gc_layer *layer)
{
    if (layer->state == GC_STATE_NONE)
        return;
    if (!layer->has_attention)
        set_linear(shape, arch, layer);
    else if (shape->convolved > 0 && shape->decays == 0)
        layer->is_size_known = true; /* attention with short convolutions, without a state */
    if (shape->convolved > 0 && is_wide(arch))
        layer->size = (struct gc_state_size){.wide = shape->convolved};
    else if (shape->convolved > 0)
        layer->size.native = shape->convolved;
}

static void set_rest(const struct gc_shape_layer *shape, struct gc_layer *layer)
{
    const bool has_attention = shape->key > 0 || shape->fused > 0 || shape->latent > 0;
    if (layer->intermediate == 0)
        layer->intermediate = shape->intermediate;
    if (layer->has_attention && has_attention)
        layer->index_dim = shape->index;
}

/* An encoder sees as many tokens as its positions are a tensor of; one of sound without that as
 * many as the sound is long; another as many as the context has. */
static void apply_source(const struct gc_shapes *shapes, struct gc_layers *layers,
                         struct gc_notes *notes)
{
    if (!layers->has_cross_attention ||
        (layers->source_tokens > 0 && shapes->positions == layers->source_tokens))
        return;
    layers->source_tokens = 0;
    if (!shapes->has_sound)
        return;
    layers->unknown |= GC_UNKNOWN_KEPT;
    layers->is_source_unknown = true;
    gc_notes_add(notes,
                 "the encoder hears sound of unknown length: keys and values of it are not counted",
                 NULL);
}

void gc_shapes_apply(const struct gc_shapes *shapes, const struct gc_arch *arch,
                     struct gc_layers *layers, struct gc_notes *notes)
{
    bool is_noted = false;
    if (shapes->is_encoder && gc_arch_number(arch, GC_ARCH_DECODER, 1) == 0)
        layers->has_kv_cache = false;
    for (uint32_t i = 0; i < layers->count && !shapes->is_packed; i++) {
        const struct gc_shape_layer *shape = &shapes->layers[i];
        struct gc_layer *layer = &layers->items[i];
        const uint64_t given = row_of(layer);
        if (layer->has_attention && !layer->is_mla)
            set_attention(shape, layer);
        if (given > 0 && row_of(layer) != given && !is_noted) {
            note_difference(i, given, row_of(layer), notes);
            is_noted = true;
        }
        set_rest(shape, layer);
        if (!arch->is_gguf)
            set_state(shape, arch, layer);
    }
    if (shapes->layer_count > 0)
        apply_source(shapes, layers, notes);
    if (layers->count == GC_ARCH_LAYER_MAX) {
        layers->unknown |= GC_UNKNOWN_KEPT | GC_UNKNOWN_WIDTHS | GC_UNKNOWN_STATE;
        gc_notes_add(notes, "layers beyond the 1024th are not counted", NULL);
    }
    gc_layers_check(layers);
    gc_shapes_tell_measured(shapes, arch, layers, notes);
}
